// Package heldconn holds TCP connections that arrive for sleeping sandboxes, and connects them once the sandbox is awake.
package heldconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// Arrivals are what is held, and how many connections have come so far.
type Arrivals struct {
	Connections []Connection `json:"connections"`
	Count       uint64       `json:"count"`
}

// Connection is one that is held.
type Connection struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
	Source  string `json:"source"`
}

const (
	// Held connections in all, and for one address: a flood towards one sleeper must not keep another from waking. Further ones are reset.
	heldMax           = 1024
	heldPerAddressMax = 32
	// Held and handed-over connections of one sandbox: it must not take the places of its neighbours by calling every sleeper. The host itself has no such bound.
	perSourceMax = 128
	// A sandbox that has not woken in this time will not; the client gets a reset.
	holdMax = 5 * time.Minute
	// A sandbox counts as awake when its program was started, and that may take a moment to listen.
	dialMax = 10 * time.Second
	waitMax = 10 * time.Minute
	// Between two answers about arrivals: a caller that connects and leaves without end costs its node this many answers and no more.
	answerEvery = 10 * time.Millisecond
	// Between two tries to reach a program that does not listen yet.
	redialMin = 5 * time.Millisecond
	redialMax = 200 * time.Millisecond
)

type held struct {
	conn    *net.TCPConn
	target  netip.AddrPort
	source  netip.Addr
	expires *time.Timer
	// unwatched is closed when the watch for the client's leaving has ended.
	unwatched chan struct{}
}

// Holder listens on the gateway address. It is the only state that a restart loses: the client sees a reset and connects again.
type Holder struct {
	mu       sync.Mutex
	listener *net.TCPListener
	address  netip.Addr
	// diverts says whether rules divert connections to an address, or did a moment ago.
	diverts func(netip.Addr) bool
	held    map[netip.Addr][]*held
	total   int
	count   uint64
	// sources counts what is held and handed over, by who called.
	sources map[netip.Addr]int
	arrived chan struct{}
	// answered is when Wait last told of arrivals.
	answered time.Time
}

// New makes a holder that does not listen yet. Connections to addresses that rules do not divert are reset.
func New(diverts func(netip.Addr) bool) *Holder {
	return &Holder{diverts: diverts, held: map[netip.Addr][]*held{}, sources: map[netip.Addr]int{}, arrived: make(chan struct{})}
}

// Ensure listens on the gateway and returns the port to divert to.
func (h *Holder) Ensure(gateway netip.Addr) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listener != nil && h.address == gateway {
		return h.listener.Addr().(*net.TCPAddr).Port, nil
	}
	if h.listener != nil {
		h.listener.Close()
	}
	listener, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(gateway, 0)))
	if err != nil {
		return 0, err
	}
	h.listener, h.address = listener, gateway
	go h.accept(listener)
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func (h *Holder) accept(listener *net.TCPListener) {
	for {
		conn, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors: wait for some to be closed instead of spinning.
			time.Sleep(100 * time.Millisecond)
			continue
		}
		target, err := originalDestination(conn)
		if err != nil || !h.hold(conn, target) {
			reset(conn)
		}
	}
}

func (h *Holder) hold(conn *net.TCPConn, target netip.AddrPort) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A connection to the listener itself, and not to an address that is or was diverted, is for no sandbox.
	if !h.diverts(target.Addr()) || h.total >= heldMax || len(h.held[target.Addr()]) >= heldPerAddressMax {
		return false
	}
	source := sourceOf(conn)
	if source != h.address && h.sources[source] >= perSourceMax {
		return false
	}
	h.sources[source]++
	one := &held{conn: conn, target: target, source: source, unwatched: make(chan struct{})}
	one.expires = time.AfterFunc(holdMax, func() { h.drop(one) })
	go h.watch(one)
	h.held[target.Addr()] = append(h.held[target.Addr()], one)
	h.total++
	h.count++
	close(h.arrived)
	h.arrived = make(chan struct{})
	return true
}

// watch gives the place of a client back that leaves while it is held: otherwise callers that give up and come again would use up their sandbox's
// places, and those of the address, for as long as connections are held.
func (h *Holder) watch(one *held) {
	defer close(one.unwatched)
	raw, err := one.conn.SyscallConn()
	if err != nil {
		return
	}
	isGone := false
	// The poller calls again for every event of the connection; a deadline in the past ends it.
	_ = raw.Read(func(fd uintptr) bool {
		isGone = hasLeft(int(fd))
		return isGone
	})
	if isGone {
		h.drop(one)
	}
}

// States of a TCP connection, as the kernel numbers them.
const (
	tcpClose     = 7
	tcpCloseWait = 8
)

// hasLeft says whether a client has reset its connection, or closed it without having sent anything. One that sent a request and then its end may still
// wait for the answer.
func hasLeft(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return false
	}
	// The end itself counts as one byte.
	return info.State == tcpClose || info.State == tcpCloseWait && info.Bytes_received <= 1
}

// unwatch ends watch, so that what the client sends can be read.
func (one *held) unwatch() {
	_ = one.conn.SetReadDeadline(time.Unix(1, 0))
	<-one.unwatched
	_ = one.conn.SetReadDeadline(time.Time{})
}

func (h *Holder) drop(one *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.held[one.target.Addr()]
	for i, other := range list {
		if other == one {
			h.held[one.target.Addr()] = append(list[:i:i], list[i+1:]...)
			h.total--
			h.leave(one.source)
			// A timer keeps its connection in memory until it fires, and callers may come and leave thousands of times in that while.
			one.expires.Stop()
			reset(one.conn)
		}
	}
}

// leave gives a place of a source back. Preconditions: the holder is locked.
func (h *Holder) leave(source netip.Addr) {
	h.sources[source]--
	if h.sources[source] == 0 {
		delete(h.sources, source)
	}
}

func (h *Holder) ended(one *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leave(one.source)
}

func sourceOf(conn *net.TCPConn) netip.Addr {
	return conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

// Wait returns what is held when the count of arrivals is another than the caller knows, or the time is up.
func (h *Holder) Wait(ctx context.Context, known uint64, wait time.Duration) (Arrivals, error) {
	if wait < 0 || wait > waitMax {
		return Arrivals{}, hosterr.New(hosterr.InvalidArgument, "waitMs: %s is not within 0 to %s", wait, waitMax)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		found, arrived, pause := h.list(known)
		if found.Count != known && pause <= 0 {
			return found, nil
		}
		var paced <-chan time.Time
		if found.Count != known {
			paced, arrived = time.After(pause), nil
		}
		select {
		case <-paced:
		case <-arrived:
		case <-timer.C:
			return found, nil
		case <-ctx.Done():
			return Arrivals{}, ctx.Err()
		}
	}
}

// list says what is held, what is closed at the next arrival, and how long to wait before arrivals that the caller does not know are reported.
func (h *Holder) list(known uint64) (Arrivals, <-chan struct{}, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pause := answerEvery - time.Since(h.answered)
	if h.count != known && pause <= 0 {
		h.answered = time.Now()
	}
	found := Arrivals{Connections: []Connection{}, Count: h.count}
	for _, several := range h.held {
		for _, one := range several {
			found.Connections = append(found.Connections, Connection{Address: one.target.Addr().String(), Port: int(one.target.Port()), Source: one.source.String()})
		}
	}
	return found, h.arrived, pause
}

func (h *Holder) take(address netip.Addr) []*held {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.held[address]
	delete(h.held, address)
	h.total -= len(list)
	for _, one := range list {
		one.expires.Stop()
	}
	return list
}

// HandOver connects what is held for an address to it, and returns how many connections that were.
func (h *Holder) HandOver(address netip.Addr) int {
	list := h.take(address)
	for _, one := range list {
		go func() {
			connect(one)
			h.ended(one)
		}()
	}
	return len(list)
}

// Drop resets what is held for an address.
func (h *Holder) Drop(address netip.Addr) {
	for _, one := range h.take(address) {
		reset(one.conn)
		h.ended(one)
	}
}

func connect(one *held) {
	one.unwatch()
	conn, err := dial(one.target)
	if err != nil {
		reset(one.conn)
		return
	}
	target := conn.(*net.TCPConn)
	var both sync.WaitGroup
	both.Go(func() { pipe(target, one.conn) })
	both.Go(func() { pipe(one.conn, target) })
	both.Wait()
	_ = target.Close()
	_ = one.conn.Close()
}

// dial waits for a program that does not listen yet.
func dial(target netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialMax)
	defer cancel()
	var dialer net.Dialer
	for pause := redialMin; ; pause = min(2*pause, redialMax) {
		conn, err := dialer.DialContext(ctx, "tcp4", target.String())
		if !errors.Is(err, unix.ECONNREFUSED) {
			return conn, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// pipe copies until the end and passes the end on; the kernel splices, nothing is read here.
func pipe(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		reset(to)
		return
	}
	_ = to.CloseWrite()
}

func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// originalDestination asks connection tracking where the client wanted to go.
func originalDestination(conn *net.TCPConn) (netip.AddrPort, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	const soOriginalDst = 80
	var target netip.AddrPort
	var failed error
	err = raw.Control(func(fd uintptr) {
		// The kernel fills a sockaddr_in of 16 bytes; this call returns a buffer that is large enough.
		var answer *unix.IPv6Mreq
		answer, failed = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, soOriginalDst)
		if failed == nil {
			b := answer.Multiaddr
			target = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3]))
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return target, fmt.Errorf("SO_ORIGINAL_DST: %w", err)
	}
	return target, nil
}
