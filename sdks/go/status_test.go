package sandbox

import (
	"net/http"
	"reflect"
	"testing"

	"agent-sandbox.dev/sdk/errorcode"
)

func TestPortsAreAskedOfTheDaemon(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
		writeJSON(w, http.StatusOK, map[string]any{"ports": []any{map[string]any{"port": 8123, "addresses": []string{"0.0.0.0", "::"}}}})
	})
	ports, err := handleOf(server.URL).Ports(t.Context())
	if want := []OpenPort{{8123, []string{"0.0.0.0", "::"}}}; err != nil || !reflect.DeepEqual(ports, want) {
		t.Fatalf("got %v, %v", ports, err)
	}
	if server.requests[0].path != "/v1/ports" {
		t.Errorf("asked for %s", server.requests[0].path)
	}
}

func TestADaemonWithoutAPageIsUnsupported(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, count int) {
		writeJSON(w, []int{http.StatusNotFound, http.StatusInternalServerError}[count-1], map[string]any{"code": "NOT_FOUND", "message": "no such endpoint"})
	})
	box := handleOf(server.URL)
	if _, err := box.Ports(t.Context()); CodeOf(err) != errorcode.Unsupported {
		t.Errorf("got %v", err)
	}
	if figures, err := box.Metrics(t.Context()); CodeOf(err) != errorcode.Internal {
		t.Errorf("got %v, %v", figures, err)
	}
}

func TestNonsenseInsteadOfPorts(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) { _, _ = w.Write([]byte("<html>")) })
	if _, err := handleOf(server.URL).Ports(t.Context()); CodeOf(err) != errorcode.ProtocolError {
		t.Errorf("got %v", err)
	}
}
