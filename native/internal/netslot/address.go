package netslot

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"agent-sandbox.dev/native/internal/hosterr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Assign routes an address to a slot and configures it inside. The runtime takes the inside's address and routes away when it starts;
// calling this again brings them back, unless a process runs there.
func (n *Network) Assign(slot int, text string) (Slot, error) {
	address, _, err := n.check(slot, text)
	if err != nil {
		return Slot{}, err
	}
	// The runtime has taken the address out of a namespace that it runs in; back there, the kernel would answer in the sandbox's place.
	isTaken, err := n.isOccupied(slot)
	if err != nil {
		return Slot{}, err
	}
	if !isTaken {
		if err := n.configureInside(slot, address); err != nil {
			return Slot{}, err
		}
	}
	return n.assignOutside(slot, address)
}

// check takes a slot's number and an address that a sandbox may have; it also returns the gateway.
func (n *Network) check(slot int, text string) (address, gateway netip.Addr, err error) {
	if err := CheckSlot(slot); err != nil {
		return address, gateway, err
	}
	if address, err = ParseAddress("address", text); err != nil {
		return address, gateway, err
	}
	if gateway, err = n.Gateway(); err != nil {
		return address, gateway, err
	}
	cidr, err := cidrOf(gateway)
	if err != nil {
		return address, gateway, err
	}
	if !cidr.Contains(address) || address == gateway {
		return address, gateway, hosterr.New(hosterr.InvalidArgument, "address: %s is not a sandbox address of %s", address, cidr)
	}
	return address, gateway, nil
}

// isOccupied is whether a process runs in a slot's namespace. Only a slot that has a route has been assigned before; most have none.
func (n *Network) isOccupied(slot int) (bool, error) {
	if found, err := n.read(slot); err != nil || found.Address == "" {
		return false, err
	}
	wanted, err := n.identity(slot)
	if err != nil {
		return false, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	for _, process := range processes {
		if name := process.Name(); name[0] < '0' || name[0] > '9' {
			continue
		}
		// A process that ended meanwhile is in none.
		if namespace, err := namespaceOf(process.Name()); err == nil && namespace == wanted {
			return true, nil
		}
	}
	return false, nil
}

// namespaceID is what the kernel knows a namespace by.
type namespaceID struct{ device, inode uint64 }

func (n *Network) identity(slot int) (namespaceID, error) {
	stat, err := n.Namespace(slot).Lstat()
	if err != nil {
		return namespaceID{}, fmt.Errorf("namespace of slot %d: %w", slot, err)
	}
	return namespaceID{device: stat.Dev, inode: stat.Ino}, nil
}

func namespaceOf(process string) (namespaceID, error) {
	var stat unix.Stat_t
	err := unix.Stat(filepath.Join("/proc", process, "ns/net"), &stat)
	return namespaceID{device: stat.Dev, inode: stat.Ino}, err
}

// Readdress gives a slot's namespace its address again, for a sandbox that is about to start in it: the one before has taken it out. A caller that
// assigned it may have found processes of that one, which go a moment later than it does, and so have left the namespace as it was.
func (n *Network) Readdress(slot int) error {
	found, err := n.read(slot)
	if err != nil || found.Address == "" {
		return err
	}
	address, err := netip.ParseAddr(found.Address)
	if err != nil {
		return err
	}
	return n.configureInside(slot, address)
}

// configureInside gives a slot's namespace an address and the routes that go with it.
func (n *Network) configureInside(slot int, address netip.Addr) error {
	gateway, err := n.Gateway()
	if err != nil {
		return err
	}
	ns, err := n.openNamespace(slot)
	if err != nil {
		return hosterr.New(hosterr.NotFound, "slot %d does not exist: %v", slot, err)
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer inside.Close()
	link, err := inside.LinkByName(insideLink)
	if err != nil {
		return hosterr.New(hosterr.NotFound, "the slot has no link: %v", err)
	}
	present, err := whole(func() ([]netlink.Addr, error) { return inside.AddrList(link, netlink.FAMILY_V4) })
	if err != nil {
		return err
	}
	for _, old := range present {
		if !old.IP.Equal(address.AsSlice()) {
			if err := inside.AddrDel(link, &old); err != nil {
				return err
			}
		}
	}
	if err := inside.AddrReplace(link, &netlink.Addr{IPNet: hostNet(address)}); err != nil {
		return fmt.Errorf("address inside: %w", err)
	}
	if err := inside.LinkSetUp(link); err != nil {
		return err
	}
	// Down in the namespace of a sandbox that waited for an address and was given up.
	if err := setLoopback(inside, inside.LinkSetUp); err != nil {
		return err
	}
	index := link.Attrs().Index
	if err := inside.RouteReplace(&netlink.Route{LinkIndex: index, Dst: hostNet(gateway), Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("route to the gateway inside: %w", err)
	}
	everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if err := inside.RouteReplace(&netlink.Route{LinkIndex: index, Dst: everywhere, Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("default route inside: %w", err)
	}
	return nil
}

func (n *Network) assignOutside(slot int, address netip.Addr) (Slot, error) {
	n.routes.Lock()
	defer n.routes.Unlock()
	link, err := netlink.LinkByName(n.inst.HostLink(slot))
	if err != nil {
		return Slot{}, hosterr.New(hosterr.NotFound, "slot %d does not exist: %v", slot, err)
	}
	old, err := routesOf(link)
	if err != nil {
		return Slot{}, err
	}
	for _, route := range old {
		if route.Dst != nil && !route.Dst.IP.Equal(address.AsSlice()) {
			if err := netlink.RouteDel(&route); err != nil {
				return Slot{}, err
			}
		}
	}
	// Replace: the address may still be routed to the slot it had before, or to the gateway's link while it slept.
	if err := routeTo(link, address); err != nil {
		return Slot{}, err
	}
	return n.read(slot)
}

// RouteSleeping routes an address to the gateway's link, where the rule set diverts it, unless a slot has it.
func (n *Network) RouteSleeping(addresses []netip.Addr) error {
	link, err := netlink.LinkByName(n.inst.GatewayLink())
	if err != nil {
		return hosterr.New(hosterr.NotFound, "the network was not set up: %v", err)
	}
	n.routes.Lock()
	defer n.routes.Unlock()
	wanted := map[netip.Addr]bool{}
	for _, address := range addresses {
		wanted[address] = true
	}
	routes, err := routesOf(nil)
	if err != nil {
		return err
	}
	for _, route := range routes {
		if route.Dst == nil {
			continue
		}
		address, ok := netip.AddrFromSlice(route.Dst.IP.To4())
		isOurs := route.LinkIndex == link.Attrs().Index
		if ok && isOurs && !wanted[address] {
			if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		// Routed already, here or to a slot: who lists the sleeping may not know yet that one of them has been woken.
		delete(wanted, address)
	}
	for address := range wanted {
		if err := routeTo(link, address); err != nil {
			return err
		}
	}
	return nil
}

// RouteChanged does as RouteSleeping for addresses that have fallen asleep or been roused since.
func (n *Network) RouteChanged(asleep, roused []netip.Addr) error {
	if len(asleep)+len(roused) == 0 {
		return nil
	}
	link, err := netlink.LinkByName(n.inst.GatewayLink())
	if err != nil {
		return hosterr.New(hosterr.NotFound, "the network was not set up: %v", err)
	}
	n.routes.Lock()
	defer n.routes.Unlock()
	for _, address := range roused {
		route := netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostNet(address), Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("route to %s: %w", address, err)
		}
	}
	for _, address := range asleep {
		// Add, which fails where a slot still has the address: when it goes, it gives the address back.
		route := netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostNet(address), Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteAdd(&route); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("route to %s: %w", address, err)
		}
	}
	return nil
}

// routeTo routes an address to a link, in one step with the end of the route that it had.
func routeTo(link netlink.Link, address netip.Addr) error {
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostNet(address), Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("route to %s: %w", address, err)
	}
	return nil
}
