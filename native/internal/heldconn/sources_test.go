package heldconn

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// dialFrom connects to a listener of the test with a source address of its own and returns the listener's end.
func dialFrom(t *testing.T, listener *net.TCPListener, source string) *net.TCPConn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	client, err := dialer.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	conn, err := listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func sleepers(count int) []netip.Addr {
	var list []netip.Addr
	for i := range count {
		list = append(list, netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}))
	}
	return list
}

func TestOneSourceCannotTakeEveryPlace(t *testing.T) {
	listener, h := listen(t), New(every)
	addresses := sleepers(40)
	taken := 0
	for _, address := range addresses {
		for range 5 {
			if h.hold(dialFrom(t, listener, "127.0.0.2"), netip.AddrPortFrom(address, 80)) {
				taken++
			}
		}
	}
	if taken != perSourceMax {
		t.Errorf("one source holds %d connections, want %d", taken, perSourceMax)
	}
	if !h.hold(dialFrom(t, listener, "127.0.0.3"), netip.AddrPortFrom(addresses[39], 80)) {
		t.Error("a neighbour's connection is not held")
	}
	for _, address := range addresses {
		h.Drop(address)
	}
	if len(h.sources) != 0 || h.total != 0 {
		t.Errorf("left behind: %v, %d", h.sources, h.total)
	}
}

func TestAHandedOverConnectionCountsUntilItEnds(t *testing.T) {
	listener, target, h := listen(t), listen(t), New(every)
	address := netip.MustParseAddr("127.0.0.1")
	port := uint16(target.Addr().(*net.TCPAddr).Port)
	conn := dialFrom(t, listener, "127.0.0.2")
	if !h.hold(conn, netip.AddrPortFrom(address, port)) {
		t.Fatal("not held")
	}
	h.HandOver(address)
	accepted, err := target.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	if count := sources(h); count != 1 {
		t.Errorf("%d sources while it is open", count)
	}
	accepted.Close()
	conn.CloseRead()
	for range 100 {
		if sources(h) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("it still counts after its end")
}

func sources(h *Holder) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sources)
}
