// Package netslot makes the routed network of an instance: a namespace and a veth pair per sandbox, a /32 address each, no bridge.
package netslot

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/mountfd"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// The link's name inside a sandbox.
	insideLink = "eth0"
	mtuDefault = 1500
	mtuMin     = 1280
	mtuMax     = 65535
	// Packets to an address of the range that no slot has must not leave by the machine's default route.
	unreachableMetric = 4096
	// A list that changes while it is read is read again; far more often than slots can come and go meanwhile.
	listTriesMax = 100
)

// NetworkRequest is the instance's range and gateway.
type NetworkRequest struct {
	CIDR    string `json:"cidr"`
	Gateway string `json:"gateway"`
}

// Slot is a slot as the kernel has it.
type Slot struct {
	Slot      int    `json:"slot"`
	Namespace string `json:"namespace"`
	HostLink  string `json:"hostLink"`
	Address   string `json:"address,omitempty"`
}

// Network makes and finds slots. Its whole state is in the kernel.
type Network struct {
	inst instance.Instance
	run  *confine.Tree
	// routes is held while it is decided which link an address is routed to.
	routes sync.Mutex
	// isAsleep is asked when a slot goes: the address of a sandbox that sleeps is given back to the gateway's link.
	isAsleep func(netip.Addr) bool
}

// New opens the network of an instance; isAsleep says whether an address is a sleeping sandbox's.
func New(inst instance.Instance, run *confine.Tree, isAsleep func(netip.Addr) bool) *Network {
	return &Network{inst: inst, run: run, isAsleep: isAsleep}
}

// Namespace is the file of a slot's network namespace. It is in the run directory: in /run/netns another program's bind mount could come to lie
// over it, and it could not be removed any more.
func (n *Network) Namespace(slot int) confine.Entry {
	return n.run.At(instance.NamespaceDir, n.inst.Namespace(slot))
}

// openNamespace opens a slot's network namespace.
func (n *Network) openNamespace(slot int) (netns.NsHandle, error) {
	f, err := n.Namespace(slot).Open(unix.O_RDONLY, 0)
	if err != nil {
		return netns.None(), err
	}
	defer f.Close()
	// The handle closes a descriptor of its own.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return netns.NsHandle(fd), err
}

// ParseAddress accepts one IPv4 address and nothing else.
func ParseAddress(field, text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil || !address.Is4() {
		return netip.Addr{}, hosterr.New(hosterr.InvalidArgument, "%s: %q is not an IPv4 address", field, text)
	}
	return address, nil
}

// ParseRange accepts one IPv4 range whose host bits are zero.
func ParseRange(field, text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || !prefix.Addr().Is4() || prefix.Masked() != prefix {
		return netip.Prefix{}, hosterr.New(hosterr.InvalidArgument, "%s: %q is not an IPv4 range such as 10.200.0.0/16", field, text)
	}
	return prefix, nil
}

// CheckSlot refuses a number that does not fit into a link's name.
func CheckSlot(slot int) error {
	if slot < 0 || slot > instance.SlotMax {
		return hosterr.New(hosterr.InvalidArgument, "slot: %d is not within 0 to %d", slot, instance.SlotMax)
	}
	return nil
}

// Ensure makes the gateway's link and the routes that everything else hangs on, and turns forwarding on.
func (n *Network) Ensure(r NetworkRequest) error {
	cidr, err := ParseRange("cidr", r.CIDR)
	if err != nil {
		return err
	}
	gateway, err := ParseAddress("gateway", r.Gateway)
	if err != nil {
		return err
	}
	if !isPrivate(cidr) {
		return hosterr.New(hosterr.InvalidArgument, "cidr: %s is no private range; what this machine sends to others would go to sandboxes", cidr)
	}
	if !cidr.Contains(gateway) || cidr.Bits() > 30 {
		return hosterr.New(hosterr.InvalidArgument, "gateway: %s is not an address of %s", gateway, cidr)
	}
	link, err := n.ensureGatewayLink()
	if err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: hostNet(gateway)}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("address of %s: %w", n.inst.GatewayLink(), err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	route := &netlink.Route{Dst: prefixNet(cidr), Type: unix.RTN_UNREACHABLE, Priority: unreachableMetric}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("unreachable route: %w", err)
	}
	return writeSysctl("net/ipv4/ip_forward", "1")
}

// privateRanges are those that the internet does not route (RFC 1918, 6598 and 2544).
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("198.18.0.0/15"),
}

func isPrivate(cidr netip.Prefix) bool {
	for _, private := range privateRanges {
		if private.Bits() <= cidr.Bits() && private.Contains(cidr.Addr()) {
			return true
		}
	}
	return false
}

func (n *Network) ensureGatewayLink() (netlink.Link, error) {
	name := n.inst.GatewayLink()
	// A pair with both ends here: the slots need veth anyway, while a dummy link needs a module that small kernels lack.
	made := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: name + "p"}
	made.Name = name
	if err := netlink.LinkAdd(made); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	for _, end := range []string{name, name + "p"} {
		if err := writeSysctl("net/ipv6/conf/"+end+"/disable_ipv6", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	peer, err := netlink.LinkByName(name + "p")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(peer); err != nil {
		return nil, err
	}
	return netlink.LinkByName(name)
}

// Gateway is the address that Ensure gave.
func (n *Network) Gateway() (netip.Addr, error) {
	link, err := netlink.LinkByName(n.inst.GatewayLink())
	if err != nil {
		return netip.Addr{}, hosterr.New(hosterr.NotFound, "the network was not set up: %v", err)
	}
	addresses, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V4) })
	if err != nil {
		return netip.Addr{}, err
	}
	for _, address := range addresses {
		if found, ok := netip.AddrFromSlice(address.IP.To4()); ok {
			return found, nil
		}
	}
	return netip.Addr{}, hosterr.New(hosterr.NotFound, "the network was not set up: %s has no address", n.inst.GatewayLink())
}

// CIDR is the range that Ensure gave.
func (n *Network) CIDR() (netip.Prefix, error) {
	gateway, err := n.Gateway()
	if err != nil {
		return netip.Prefix{}, err
	}
	return cidrOf(gateway)
}

// cidrOf is the range that a gateway is of.
func cidrOf(gateway netip.Addr) (netip.Prefix, error) {
	wanted := &netlink.Route{Type: unix.RTN_UNREACHABLE, Priority: unreachableMetric}
	routes, err := whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, wanted, netlink.RT_FILTER_TYPE|netlink.RT_FILTER_PRIORITY)
	})
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, route := range routes {
		if route.Dst == nil {
			continue
		}
		address, ok := netip.AddrFromSlice(route.Dst.IP.To4())
		ones, _ := route.Dst.Mask.Size()
		if prefix := netip.PrefixFrom(address, ones); ok && prefix.Contains(gateway) {
			return prefix, nil
		}
	}
	return netip.Prefix{}, hosterr.New(hosterr.NotFound, "the network was not set up: no route of its range")
}

// Remove takes away the gateway's link and the range's route.
func (n *Network) Remove() error {
	if cidr, err := n.CIDR(); err == nil {
		route := &netlink.Route{Dst: prefixNet(cidr), Type: unix.RTN_UNREACHABLE, Priority: unreachableMetric}
		if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return deleteLink(n.inst.GatewayLink())
}

// EnsureSlot makes a namespace and a veth pair, or finds them whole.
func (n *Network) EnsureSlot(slot, mtu int) (Slot, error) {
	if err := CheckSlot(slot); err != nil {
		return Slot{}, err
	}
	if mtu == 0 {
		mtu = mtuDefault
	}
	if mtu < mtuMin || mtu > mtuMax {
		return Slot{}, hosterr.New(hosterr.InvalidArgument, "mtu: %d is not within %d to %d", mtu, mtuMin, mtuMax)
	}
	ns, err := n.ensureNamespace(slot)
	if err != nil {
		return Slot{}, err
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return Slot{}, fmt.Errorf("netlink in %s: %w", n.inst.Namespace(slot), err)
	}
	defer inside.Close()
	if err := n.ensurePair(slot, mtu, ns, inside); err != nil {
		return Slot{}, err
	}
	return n.read(slot)
}

func (n *Network) ensurePair(slot, mtu int, ns netns.NsHandle, inside *netlink.Handle) error {
	name := n.inst.HostLink(slot)
	_, hostErr := netlink.LinkByName(name)
	_, insideErr := inside.LinkByName(insideLink)
	for _, err := range []error{hostErr, insideErr} {
		if err != nil && !isMissing(err) {
			return err
		}
	}
	if hostErr != nil || insideErr != nil {
		// One end alone is what a kill or a deleted namespace left.
		if err := deleteLink(name); err != nil {
			return err
		}
		pair := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: insideLink, PeerNamespace: netlink.NsFd(int(ns)), PeerMTU: uint32(mtu)}
		pair.Name, pair.MTU = name, mtu
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("veth %s: %w", name, err)
		}
	}
	return configurePair(name, inside)
}

// configurePair is repeated for a pair that was found: the helper that made it may have been killed before it came here.
func configurePair(name string, inside *netlink.Handle) error {
	// No address of IPv6 is ever made on the host's side, so that no link-local path exists.
	if err := writeSysctl("net/ipv6/conf/"+name+"/disable_ipv6", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Spoofed sources are dropped by the rule set; the reverse path filter would also drop what is answered for a sleeping address.
	if err := writeSysctl("net/ipv4/conf/"+name+"/rp_filter", "0"); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	return setLoopback(inside, inside.LinkSetUp)
}

func setLoopback(inside *netlink.Handle, set func(netlink.Link) error) error {
	lo, err := inside.LinkByName("lo")
	if err != nil {
		return err
	}
	return set(lo)
}

// ensureNamespace makes a named namespace that outlives this process.
func (n *Network) ensureNamespace(slot int) (netns.NsHandle, error) {
	at := n.Namespace(slot)
	if found, err := n.openNamespace(slot); err == nil {
		var stat unix.Statfs_t
		if err := unix.Fstatfs(int(found), &stat); err == nil && stat.Type == unix.NSFS_MAGIC {
			return found, nil
		}
		_ = found.Close()
	}
	f, err := at.Open(unix.O_RDONLY|unix.O_CREAT, 0o444)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return netns.None(), err
	}
	failed := make(chan error)
	go func() {
		// The thread is in the new namespace and is not unlocked: the runtime ends it with this goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("unshare: %w", err)
			return
		}
		failed <- holdOwnNamespace(at)
	}()
	if err := <-failed; err != nil {
		return netns.None(), fmt.Errorf("namespace %s: %w", at.Base(), err)
	}
	return n.openNamespace(slot)
}

// holdOwnNamespace mounts the network namespace of the calling thread, so that it outlives the thread.
func holdOwnNamespace(at confine.Entry) error {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	mount, err := mountfd.Clone(own, false)
	if err != nil {
		return err
	}
	defer mount.Close()
	return mountfd.Attach(mount, at)
}

// ReleaseSlot removes a slot's links, routes and namespace.
func (n *Network) ReleaseSlot(slot int) error {
	if err := CheckSlot(slot); err != nil {
		return err
	}
	n.routes.Lock()
	defer n.routes.Unlock()
	if err := n.routeBack(slot); err != nil {
		return err
	}
	if err := deleteLink(n.inst.HostLink(slot)); err != nil {
		return err
	}
	return mountfd.Remove(n.Namespace(slot))
}

// routeBack routes a slot's address to the gateway's link if its sandbox sleeps: it may have been listed while the slot still had it, and who
// connects to it may find no moment without a route.
func (n *Network) routeBack(slot int) error {
	found, err := n.read(slot)
	if err != nil || found.Address == "" {
		return err
	}
	address, err := netip.ParseAddr(found.Address)
	if err != nil || !n.isAsleep(address) {
		return err
	}
	gateway, err := netlink.LinkByName(n.inst.GatewayLink())
	if err != nil {
		return hosterr.New(hosterr.NotFound, "the network was not set up: %v", err)
	}
	return routeTo(gateway, address)
}

// List is every slot that has a namespace or a link.
func (n *Network) List() ([]Slot, error) {
	found := map[int]bool{}
	entries, err := n.run.At(instance.NamespaceDir).ReadDir()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if slot, ok := n.inst.SlotOfNamespace(entry.Name()); ok {
			found[slot] = true
		}
	}
	links, err := whole(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		var slot int
		if _, err := fmt.Sscanf(link.Attrs().Name, n.inst.LinkPrefix()+"%04x", &slot); err == nil {
			found[slot] = true
		}
	}
	slots := []Slot{}
	for slot := range found {
		s, err := n.read(slot)
		if err != nil {
			return nil, err
		}
		slots = append(slots, s)
	}
	return slots, nil
}

func (n *Network) read(slot int) (Slot, error) {
	s := Slot{Slot: slot, Namespace: n.inst.Namespace(slot), HostLink: n.inst.HostLink(slot)}
	link, err := netlink.LinkByName(s.HostLink)
	if isMissing(err) {
		// Only the namespace is left of it.
		return s, nil
	}
	if err != nil {
		return s, err
	}
	routes, err := routesOf(link)
	if err != nil {
		return s, err
	}
	for _, route := range routes {
		if route.Dst != nil {
			s.Address = route.Dst.IP.String()
		}
	}
	return s, nil
}

// routesOf is what is routed to a link, or to any.
func routesOf(link netlink.Link) ([]netlink.Route, error) {
	return whole(func() ([]netlink.Route, error) { return netlink.RouteList(link, netlink.FAMILY_V4) })
}

// whole lists again for as long as the kernel says that the list changed while it was read.
func whole[T any](list func() ([]T, error)) ([]T, error) {
	for range listTriesMax {
		if found, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
	return nil, hosterr.New(hosterr.Busy, "the kernel's lists change faster than they can be read")
}

func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	return nil
}

func isMissing(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

func hostNet(address netip.Addr) *net.IPNet {
	return &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(32, 32)}
}

func prefixNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 32)}
}

func writeSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}
