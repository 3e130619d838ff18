package daemon

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestDialReachesLoopbackListeners(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.server)
	defer server.Close()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	go func() {
		connection, err := target.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		// All of the request, up to the half close, comes before the answer.
		text, _ := io.ReadAll(connection)
		fmt.Fprintf(connection, "heard %s", text)
	}()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, port, _ := net.SplitHostPort(target.Addr().String())
	fmt.Fprintf(connection, "GET /v1/dial/%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly, ", port)
	reader := bufio.NewReader(connection)
	answer, err := http.ReadResponse(reader, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", answer, err)
	}
	io.WriteString(connection, "late")
	connection.(*net.TCPConn).CloseWrite()
	if text, _ := io.ReadAll(reader); string(text) != "heard early, late" {
		t.Errorf("got %q", text)
	}
}

func TestDialRefuses(t *testing.T) {
	w := newWorld(t)
	w.expect(w.request("GET", "/v1/dial/0", "", "Connection", "Upgrade", "Upgrade", "tcp"), 400, "INVALID_ARGUMENT")
	w.expect(w.request("GET", "/v1/dial/80", ""), 426, "FAILED_PRECONDITION")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	got := w.request("GET", "/v1/dial/"+port, "", "Connection", "Upgrade", "Upgrade", "tcp")
	if got.status != 502 && !strings.Contains(got.body, "UNAVAILABLE") {
		t.Errorf("%+v", got)
	}
}
