package netslot

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"

	"agent-sandbox.dev/native/internal/hosterr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Connection is what a sandbox needs that runs in a slot's namespace and has no network yet.
type Connection struct {
	// Socket gets every packet of the slot's link.
	Socket           *os.File
	Loopback         []netip.Prefix
	Name             string
	MTU              int
	GSOBytesMax      uint32
	HardwareAddress  net.HardwareAddr
	Address, Gateway netip.Addr
}

// Silence makes a slot's namespace one that a runtime finds no network in.
func (n *Network) Silence(slot int) error {
	inside, err := n.handle(slot)
	if err != nil {
		return err
	}
	defer inside.Close()
	return setLoopback(inside, inside.LinkSetDown)
}

// Raise brings the links of a slot's namespace up, behind the back of the runtime that has found none. The kernel makes no address on the slot's
// own: it would answer in the sandbox's place.
func (n *Network) Raise(slot int) error {
	inside, err := n.handle(slot)
	if err != nil {
		return err
	}
	defer inside.Close()
	if err := n.within(slot, func() error {
		err := writeSysctl("net/ipv6/conf/"+insideLink+"/disable_ipv6", "1")
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	link, err := inside.LinkByName(insideLink)
	if err != nil {
		return hosterr.New(hosterr.NotFound, "the slot has no link: %v", err)
	}
	if err := inside.LinkSetUp(link); err != nil {
		return err
	}
	return setLoopback(inside, inside.LinkSetUp)
}

// within runs a function in a slot's namespace.
func (n *Network) within(slot int, run func() error) error {
	ns, err := n.openNamespace(slot)
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		// The thread stays in the namespace and is not unlocked: the runtime ends it with this goroutine.
		runtime.LockOSThread()
		err := netns.Set(ns)
		if err == nil {
			err = run()
		}
		done <- err
	}()
	return <-done
}

// Connect routes an address to a slot in whose namespace a process runs, and opens the slot's link for it. As with a runtime's own start the
// kernel has no address in the namespace: it would answer in the sandbox's place.
func (n *Network) Connect(slot, pid int, text string) (Connection, error) {
	address, gateway, err := n.check(slot, text)
	if err != nil {
		return Connection{}, err
	}
	wanted, err := n.identity(slot)
	if err != nil {
		return Connection{}, err
	}
	if found, err := namespaceOf(strconv.Itoa(pid)); err != nil || found != wanted {
		return Connection{}, errors.Join(hosterr.New(hosterr.InvalidArgument, "slot: process %d does not run in slot %d", pid, slot), err)
	}
	inside, err := n.handle(slot)
	if err != nil {
		return Connection{}, err
	}
	defer inside.Close()
	c := Connection{Name: insideLink, Address: address, Gateway: gateway}
	if c.Loopback, err = loopbackOf(inside); err != nil {
		return Connection{}, err
	}
	if c.Socket, err = n.openLink(slot); err != nil {
		return Connection{}, err
	}
	if err := c.use(inside); err != nil {
		return Connection{}, errors.Join(err, c.Socket.Close())
	}
	if _, err := n.assignOutside(slot, address); err != nil {
		return Connection{}, errors.Join(err, c.Socket.Close())
	}
	return c, nil
}

func (n *Network) handle(slot int) (*netlink.Handle, error) {
	ns, err := n.openNamespace(slot)
	if err != nil {
		return nil, hosterr.New(hosterr.NotFound, "slot %d does not exist: %v", slot, err)
	}
	defer ns.Close()
	return netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
}

// loopbackOf is what the kernel itself put on the loopback link.
func loopbackOf(inside *netlink.Handle) ([]netip.Prefix, error) {
	lo, err := inside.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	addresses, err := whole(func() ([]netlink.Addr, error) { return inside.AddrList(lo, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	var found []netip.Prefix
	for _, a := range addresses {
		ones, _ := a.Mask.Size()
		if address, ok := netip.AddrFromSlice(a.IP); ok {
			found = append(found, netip.PrefixFrom(address.Unmap(), ones))
		}
	}
	return found, nil
}

// openLink opens a socket in a slot's namespace.
func (n *Network) openLink(slot int) (*os.File, error) {
	var fd int
	if err := n.within(slot, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		return nil, fmt.Errorf("socket in slot %d: %w", slot, err)
	}
	return os.NewFile(uintptr(fd), insideLink), nil
}

// Numbers of the kernel and of runsc, which does the same with the sockets that it opens itself.
const (
	allProtocols = 0x0300 // ETH_P_ALL in network order
	socketBytes  = 4 << 20
	fanoutUnique = (unix.PACKET_FANOUT_HASH | unix.PACKET_FANOUT_FLAG_UNIQUEID) << 16
)

// use binds the socket to the slot's link.
func (c *Connection) use(inside *netlink.Handle) error {
	link, err := inside.LinkByName(c.Name)
	if err != nil {
		return hosterr.New(hosterr.NotFound, "the slot has no link: %v", err)
	}
	attrs := link.Attrs()
	c.MTU, c.GSOBytesMax, c.HardwareAddress = attrs.MTU, attrs.GSOMaxSize, attrs.HardwareAddr
	fd := int(c.Socket.Fd())
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: attrs.Index}); err != nil {
		return fmt.Errorf("bind to %s: %w", c.Name, err)
	}
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBytes},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBytes},
		{unix.SOL_PACKET, unix.PACKET_FANOUT, fanoutUnique},
	} {
		if err := unix.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			return fmt.Errorf("socket on %s, option %d: %w", c.Name, option.name, err)
		}
	}
	return nil
}
