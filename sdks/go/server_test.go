package sandbox

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"agent-sandbox.dev/sdk/protocol/agentsandbox/v1/agentsandboxv1connect"
)

// recorder is a server whose requests are kept.
type recorder struct {
	*httptest.Server
	mutex    sync.Mutex
	requests []recorded
}

type recorded struct {
	method, path string
	header       http.Header
	body         []byte
}

// serve answers requests by a handler; the body was read already and is given to it.
func serve(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, body []byte, count int)) *recorder {
	t.Helper()
	kept := &recorder{}
	kept.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		kept.mutex.Lock()
		kept.requests = append(kept.requests, recorded{r.Method, r.RequestURI, r.Header.Clone(), body})
		count := len(kept.requests)
		kept.mutex.Unlock()
		handle(w, r, body, count)
	}))
	t.Cleanup(kept.Close)
	return kept
}

// handleOf is a handle of a sandbox that is there.
func handleOf(url string) *Sandbox {
	return newSandbox(engineAt(url), &object{Metadata: metadata{Name: "box", Namespace: "default", UID: "uid-1"}})
}

// engineAt is an engine whose API server and router are one server.
func engineAt(url string) *Engine {
	return newEngine(&credentials{server: url, namespace: "default", token: "secret"}, url, true)
}

func messageOf(err error) string {
	var own *Error
	if errors.As(err, &own) {
		return own.Message
	}
	return ""
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// processServer serves ProcessService with a function per method.
func processServer(t *testing.T, service agentsandboxv1connect.ProcessServiceHandler) string {
	t.Helper()
	_, handler := agentsandboxv1connect.NewProcessServiceHandler(service)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func startedEvent() *sandboxv1.ProcessEvent {
	return &sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Started{Started: &sandboxv1.Process{Id: "0123456789abcdef", Pid: 7}}}
}

func stdoutEvent(text string, offset uint64) *sandboxv1.ProcessEvent {
	return &sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Stdout{Stdout: &sandboxv1.Output{Data: []byte(text), Offset: offset}}}
}

func stderrEvent(text string, offset uint64) *sandboxv1.ProcessEvent {
	return &sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Stderr{Stderr: &sandboxv1.Output{Data: []byte(text), Offset: offset}}}
}

func exitEvent(code int32) *sandboxv1.ProcessEvent {
	return &sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Exit{Exit: &sandboxv1.Exit{Code: code}}}
}
