package daemon

import (
	"encoding/json"
	"net"
	"reflect"
	"slices"
	"testing"
)

func TestListeningPortsAreReadFromTheKernelsTables(t *testing.T) {
	loopback := "  9: 0100007F:0016 00000000:0000 0A 0\n 10: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0\n"
	got := openPorts(recordedTcp+recordedTcp6+loopback, []string{"C2EC"})
	want := []openPort{{22, []string{"127.0.0.1", "::1"}}, {3000, []string{"::"}}, {8080, []string{"0.0.0.0"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, nonsense := range []string{"", "nonsense\n1: 2 3\n", "1: 00:1F90 0:0 0A\n", "1: 00000000:XYZW 0:0 0A\n", "1: 0000000G:1F90 0:0 0A\n"} {
		if got := openPorts(nonsense, nil); len(got) != 0 {
			t.Errorf("%q: %v", nonsense, got)
		}
	}
}

func TestPortsTellsWhatListensAndNotTheDaemon(t *testing.T) {
	w := newWorld(t)
	shown := func() []openPort {
		var answer struct{ Ports []openPort }
		if err := json.Unmarshal([]byte(w.request("GET", "/v1/ports", "").body), &answer); err != nil || answer.Ports == nil {
			t.Fatalf("%v %v", answer, err)
		}
		return answer.Ports
	}
	portOf := func(address net.Addr) int { return address.(*net.TCPAddr).Port }
	isShown := func(port int) bool {
		return slices.ContainsFunc(shown(), func(one openPort) bool { return one.Port == port })
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(listener.Addr())
	if !slices.ContainsFunc(shown(), func(one openPort) bool {
		return one.Port == port && slices.Equal(one.Addresses, []string{"127.0.0.1"})
	}) {
		t.Errorf("%d is not among %v", port, shown())
	}
	listener.Close()
	if isShown(port) {
		t.Errorf("%d is still told of", port)
	}
	for _, own := range w.server.ownPorts {
		for _, one := range shown() {
			if hexPort(one.Port) == own {
				t.Errorf("the daemon's own port %d is told of", one.Port)
			}
		}
	}
}
