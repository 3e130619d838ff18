package daemon

import (
	"net"
	"testing"
)

func TestAPortThatSomebodyListensOnIsNotBoundAgain(t *testing.T) {
	listeners, err := Listen([]string{"127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer listeners[0].Close()
	if again, err := Listen([]string{listeners[0].Addr().String()}); err == nil {
		again[0].Close()
		t.Error("a port that somebody listens on was bound again")
	}
}

func TestAPortWithConnectionsOfTheDaemonBeforeIsBoundAgain(t *testing.T) {
	before, err := Listen([]string{"127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", before[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	served, err := before[0].Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	before[0].Close()
	after, err := Listen([]string{before[0].Addr().String()})
	if err != nil {
		t.Fatalf("the next daemon cannot bind: %v", err)
	}
	after[0].Close()
}
