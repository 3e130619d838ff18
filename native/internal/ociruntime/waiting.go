package ociruntime

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/netslot"
	"golang.org/x/sys/unix"
)

// The pipes between us and the first process of a sandbox that waits. They are there for as long as it does, and outlive this program.
const (
	waitName   = "waiting.name"
	waitAnswer = "waiting.answer"
	// connected holds the request that ended the wait.
	connected = "connected.json"
)

// nameSetWithin is far longer than a process takes that has nothing else to do.
const nameSetWithin = 5 * time.Second

// prepareWait makes the pipes, and hides the slot's network from the runtime.
func (e *Engine) prepareWait(r RunRequest) error {
	for _, name := range []string{waitName, waitAnswer} {
		if err := e.inDir(r.ID, name).Mkfifo(0o600); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return e.network.Silence(*r.Slot)
}

// settleWait does what a waiting sandbox's network and container would have to wait for later.
func (e *Engine) settleWait(r RunRequest) error {
	e.cgroups.Expect(r.Cgroup)
	return e.network.Raise(*r.Slot)
}

// openWait opens what a waiting process reads from and writes to. Both ends of each pipe stay open in the sandbox, so that neither ever ends.
func (e *Engine) openWait(id string) ([3]*os.File, error) {
	var files [3]*os.File
	var err error
	for i, name := range []string{waitName, waitAnswer} {
		if files[i], err = e.inDir(id, name).Open(unix.O_RDWR, 0); err != nil {
			return files, err
		}
	}
	files[2], err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
	return files, err
}

// connect ends a sandbox's wait: it gets its network and its name, as the runtime's own start would have given them. It is on the disk that it
// has them once the function that it returns has returned.
func (e *Engine) connect(ctx context.Context, id string, r ConnectRequest) (settled func() error, err error) {
	rec, err := e.readRecord(id)
	if err != nil {
		return nil, err
	}
	var before ConnectRequest
	if err := e.shelf.Read(e.inDir(id, connected), &before); err == nil && before == r {
		return func() error { return nil }, nil
	}
	if !rec.Running || !e.isAlive(rec) {
		return nil, hosterr.New(hosterr.Busy, "sandbox %s has ended", id)
	}
	pipes, err := e.takeWait(id)
	if err != nil {
		return nil, err
	}
	defer pipes.close()
	if err := e.connectThrough(ctx, pipes, rec, r); err != nil {
		return nil, err
	}
	return durable.Begin(e.inDir(id, connected), &r)
}

func (e *Engine) connectThrough(ctx context.Context, pipes waitPipes, rec record, r ConnectRequest) error {
	if _, err := pipes.name.WriteString(r.Hostname + "\n"); err != nil {
		return err
	}
	if r.MemoryBytes > 0 {
		if err := e.resize(ctx, rec.ID, r.MemoryBytes); err != nil {
			return err
		}
	}
	connection, err := e.network.Connect(r.Slot, rec.Pid, r.Address)
	if err != nil {
		return err
	}
	defer connection.Socket.Close()
	if err := callSentry(ctx, e.controlSocket(rec.ID), "Network.CreateLinksAndRoutes", linksOf(connection), nil, connection.Socket); err != nil {
		return hosterr.New(hosterr.RuntimeFailed, "network of sandbox %s: %v", rec.ID, err)
	}
	if err := pipes.awaitName(ctx); err != nil {
		return hosterr.New(hosterr.RuntimeFailed, "name of sandbox %s: %v", rec.ID, err)
	}
	return nil
}

type waitPipes struct{ name, answer *os.File }

func (p waitPipes) close() {
	p.name.Close()
	p.answer.Close()
}

// takeWait opens the pipes and takes them away: a helper that is killed after that leaves a sandbox that is not taken for one that waits.
func (e *Engine) takeWait(id string) (waitPipes, error) {
	var files [2]*os.File
	for i, name := range []string{waitName, waitAnswer} {
		f, err := e.inDir(id, name).Open(unix.O_RDWR|unix.O_NONBLOCK, 0)
		if err == nil {
			err = e.inDir(id, name).Unlink()
		}
		if errors.Is(err, os.ErrNotExist) {
			err = hosterr.New(hosterr.Busy, "sandbox %s does not wait for a network", id)
		}
		if err != nil {
			return waitPipes{}, errors.Join(err, closeAll(append(files[:i], f)))
		}
		files[i] = f
	}
	return waitPipes{name: files[0], answer: files[1]}, nil
}

func closeAll(files []*os.File) error {
	var err error
	for _, f := range files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// awaitName returns once the process inside has set the name.
func (p waitPipes) awaitName(ctx context.Context) error {
	deadline := time.Now().Add(nameSetWithin)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	if err := p.answer.SetReadDeadline(deadline); err != nil {
		return err
	}
	answer, err := bufio.NewReader(p.answer).ReadString('\n')
	if err != nil {
		return err
	}
	if answer = strings.TrimSpace(answer); answer != "ok" {
		return errors.New(answer)
	}
	return nil
}

// The sentry's own structures, as far as they are used here; what is left out is zero.
type (
	sentryAddress struct {
		Address   net.IP
		PrefixLen int
	}
	sentryRoute struct {
		Destination net.IPNet
		Gateway     net.IP
	}
	sentryLoopback struct {
		Name      string
		Addresses []sentryAddress
		Routes    []sentryRoute
	}
	sentryLink struct {
		Name              string
		MTU               int
		Addresses         []sentryAddress
		Routes            []sentryRoute
		GSOMaxSize        uint32
		RXChecksumOffload bool
		LinkAddress       net.HardwareAddr
		QDisc             int
		NumChannels       int
		IsPacket          []bool
		PreConfigured     bool
	}
	sentryDefaultRoute struct {
		Route sentryRoute
		Name  string
	}
	sentryLinks struct {
		LoopbackLinks    []sentryLoopback
		FDBasedLinks     []sentryLink
		Defaultv4Gateway sentryDefaultRoute
	}
)

// queueFIFO is the sentry's number for the discipline that runsc uses unless told otherwise.
const queueFIFO = 1

// linksOf is what runsc would have read from the namespace, with the values that its flags have by default.
func linksOf(c netslot.Connection) sentryLinks {
	loopback := sentryLoopback{Name: "lo"}
	for _, prefix := range c.Loopback {
		loopback.Addresses = append(loopback.Addresses, sentryAddress{Address: prefix.Addr().AsSlice(), PrefixLen: prefix.Bits()})
		loopback.Routes = append(loopback.Routes, sentryRoute{Destination: ipNet(prefix.Masked())})
	}
	gateway := net.IP(c.Gateway.AsSlice())
	link := sentryLink{
		Name: c.Name, MTU: c.MTU, GSOMaxSize: c.GSOBytesMax, RXChecksumOffload: true, LinkAddress: c.HardwareAddress, QDisc: queueFIFO,
		Addresses: []sentryAddress{{Address: c.Address.AsSlice(), PrefixLen: c.Address.BitLen()}},
		Routes:    []sentryRoute{{Destination: ipNet(netip.PrefixFrom(c.Gateway, c.Gateway.BitLen()))}},
		// The socket has been set up here: a sentry that runs may not do that any more.
		NumChannels: 1, IsPacket: []bool{true}, PreConfigured: true,
	}
	everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	return sentryLinks{
		LoopbackLinks: []sentryLoopback{loopback}, FDBasedLinks: []sentryLink{link},
		Defaultv4Gateway: sentryDefaultRoute{Route: sentryRoute{Destination: ipNet(everywhere), Gateway: gateway}, Name: c.Name},
	}
}

func ipNet(prefix netip.Prefix) net.IPNet {
	return net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
