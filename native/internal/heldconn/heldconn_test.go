package heldconn

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// caller is a connection and its end at the holder.
func caller(t *testing.T) (client *net.TCPConn, held *net.TCPConn) {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err = net.DialTCP("tcp4", nil, listener.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	held, err = listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); held.Close() })
	return client, held
}

// unused is an address of this machine where nobody listens yet.
func unused(t *testing.T) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

// every takes rules for granted that divert everything.
func every(netip.Addr) bool { return true }

func TestHolderTakesWhatRulesDivertAndNothingElse(t *testing.T) {
	target := netip.MustParseAddrPort("10.200.0.2:80")
	isDiverted := false
	h := New(func(address netip.Addr) bool { return isDiverted && address == target.Addr() })
	held := func() bool {
		_, conn := caller(t)
		return h.hold(conn, target)
	}
	if held() {
		t.Error("an address that is not diverted was held for")
	}
	isDiverted = true
	for range 2 {
		if !held() {
			t.Error("an address that is diverted was not held for")
		}
	}
	if got := h.HandOver(target.Addr()); got != 2 {
		t.Errorf("%d connections were handed over, not 2", got)
	}
	client, conn := caller(t)
	h.hold(conn, target)
	h.Drop(target.Addr())
	if _, err := client.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("a connection that was dropped was not reset: %v", err)
	}
}

func TestHandOverWaitsForAProgramThatDoesNotListenYet(t *testing.T) {
	h := New(every)
	target := unused(t)
	client, conn := caller(t)
	if !h.hold(conn, target) || h.HandOver(target.Addr()) != 1 {
		t.Fatal("the connection was not held")
	}
	time.Sleep(300 * time.Millisecond)
	listener, err := net.Listen("tcp4", target.String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if one, err := listener.Accept(); err == nil {
			_, _ = one.Write([]byte("answer"))
			one.Close()
		}
	}()
	_ = client.SetReadDeadline(time.Now().Add(5 * time.Second))
	if answer, err := io.ReadAll(client); err != nil || string(answer) != "answer" {
		t.Errorf("the caller got %q, %v", answer, err)
	}
}

func TestWaitTellsOfArrivalsOnce(t *testing.T) {
	h := New(every)
	target := netip.MustParseAddrPort("10.200.0.2:80")
	_, conn := caller(t)
	h.hold(conn, target)
	first, err := h.Wait(t.Context(), 0, time.Minute)
	if err != nil || len(first.Connections) != 1 || first.Count != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	start := time.Now()
	again, err := h.Wait(t.Context(), first.Count, 100*time.Millisecond)
	if err != nil || len(again.Connections) != 1 || time.Since(start) < 100*time.Millisecond {
		t.Errorf("what is known was told again at once: %+v, %v", again, err)
	}
	told := make(chan Arrivals, 1)
	go func() {
		next, _ := h.Wait(t.Context(), first.Count, time.Minute)
		told <- next
	}()
	_, second := caller(t)
	h.hold(second, target)
	if next := <-told; next.Count != 2 || len(next.Connections) != 2 {
		t.Errorf("%+v", next)
	}
}

func TestClientThatLeavesGivesItsPlaceBack(t *testing.T) {
	h := New(every)
	target := netip.MustParseAddrPort("10.200.0.2:80")
	leave := map[string]func(*net.TCPConn){
		"closes": func(client *net.TCPConn) { _ = client.Close() },
		"resets": func(client *net.TCPConn) { reset(client) },
		"sends and resets": func(client *net.TCPConn) {
			_, _ = client.Write([]byte("GET /"))
			reset(client)
		},
	}
	for how, act := range leave {
		// More than one address has places for.
		for range 2 * heldPerAddressMax {
			client, conn := caller(t)
			if !h.hold(conn, target) {
				t.Fatalf("a connection was refused after others that %s", how)
			}
			act(client)
			await(t, "the place of a client that "+how, func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return len(h.held[target.Addr()]) == 0
			})
		}
	}
	if len(h.sources) != 0 || h.total != 0 {
		t.Errorf("%d sources and %d connections are still counted", len(h.sources), h.total)
	}
}

func TestTimerOfAClientThatLeftIsStopped(t *testing.T) {
	h := New(every)
	target := netip.MustParseAddrPort("10.200.0.2:80")
	client, conn := caller(t)
	h.hold(conn, target)
	h.mu.Lock()
	one := h.held[target.Addr()][0]
	h.mu.Unlock()
	client.Close()
	<-one.unwatched
	if one.expires.Stop() {
		t.Error("the connection stays in memory until the end of its time")
	}
}

func TestArrivalsAreToldAtAPace(t *testing.T) {
	h := New(every)
	target := netip.MustParseAddrPort("10.200.0.2:80")
	known, start := uint64(0), time.Now()
	const answers = 5
	for range answers {
		client, conn := caller(t)
		h.hold(conn, target)
		client.Close()
		found, err := h.Wait(t.Context(), known, time.Minute)
		if err != nil || found.Count == known {
			t.Fatalf("%+v, %v", found, err)
		}
		known = found.Count
	}
	if took := time.Since(start); took < (answers-1)*answerEvery {
		t.Errorf("%d answers took %s", answers, took)
	}
}

func TestClientThatSentItsRequestAndItsEndIsServed(t *testing.T) {
	h := New(every)
	listener := listen(t)
	target := listener.Addr().(*net.TCPAddr).AddrPort()
	client, conn := caller(t)
	if !h.hold(conn, target) {
		t.Fatal("the connection was not held")
	}
	_, _ = client.Write([]byte("question"))
	_ = client.CloseWrite()
	time.Sleep(50 * time.Millisecond)
	if got := h.HandOver(target.Addr()); got != 1 {
		t.Fatalf("%d connections were handed over, not 1", got)
	}
	served, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	if question, err := io.ReadAll(served); err != nil || string(question) != "question" {
		t.Errorf("the program got %q, %v", question, err)
	}
	_, _ = served.Write([]byte("answer"))
	served.Close()
	_ = client.SetReadDeadline(time.Now().Add(5 * time.Second))
	if answer, err := io.ReadAll(client); err != nil || string(answer) != "answer" {
		t.Errorf("the caller got %q, %v", answer, err)
	}
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s was not given back", what)
		}
	}
}
