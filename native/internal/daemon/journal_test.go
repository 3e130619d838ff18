package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/initd"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"connectrpc.com/connect"
)

// startDetached starts a process and returns its id.
func (w *world) startDetached(request *sandboxv1.StartRequest) (string, error) {
	request.Detach = true
	stream, err := w.processes.Start(w.t.Context(), request)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	if !stream.Receive() {
		return "", stream.Err()
	}
	return stream.Msg().GetStarted().GetId(), nil
}

// logged waits until the sandbox's log matches.
func (w *world) logged(pattern string) {
	w.t.Helper()
	var text []byte
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, _ = os.ReadFile(filepath.Join(filepath.Dir(w.root), "log", initd.LogName))
		if regexp.MustCompile(pattern).Match(text) {
			return
		}
	}
	w.t.Fatalf("%s is not in %q", pattern, text)
}

func ownShell(script string) *sandboxv1.ProcessSpec {
	return &sandboxv1.ProcessSpec{Command: []string{"/bin/sh", "-c", script}}
}

func TestOutputOfAProcessIsInTheLogWhereAskedFor(t *testing.T) {
	w := newWorld(t)
	if _, err := w.startDetached(&sandboxv1.StartRequest{Spec: ownShell("echo silent")}); err != nil {
		t.Fatal(err)
	}
	spec := ownShell("echo out; printf unfinished >&2")
	spec.Log = true
	id, err := w.startDetached(&sandboxv1.StartRequest{Spec: spec, IdempotencyKey: "key"})
	if err != nil {
		t.Fatal(err)
	}
	w.logged(`stdout F \[sh-` + id[:8] + `\] out\n`)
	w.logged(`stderr F \[sh-` + id[:8] + `\] unfinished\n`)
	if again, err := w.startDetached(&sandboxv1.StartRequest{Spec: spec, IdempotencyKey: "key"}); err != nil || again != id {
		t.Errorf("a repeated start gave %s: %v", again, err)
	}
	spec.Tag = "tagged"
	if _, err := w.startDetached(&sandboxv1.StartRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	w.logged(`\[tagged\] out\n`)
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(w.root), "log", initd.LogName))
	if regexp.MustCompile("silent").Match(text) {
		t.Errorf("%q", text)
	}
}

func TestServiceIsKeptRunningUntilItIsEnded(t *testing.T) {
	w := newWorld(t)
	if _, err := w.startDetached(&sandboxv1.StartRequest{Spec: ownShell("echo up; exec sleep 1000"), Service: "web"}); err != nil {
		t.Fatal(err)
	}
	w.logged(`\[web\] up\n`)
	listed, err := w.processes.List(t.Context(), &sandboxv1.ListRequest{RunningOnly: true})
	if err != nil || len(listed.GetProcesses()) != 1 || listed.GetProcesses()[0].GetTag() != "web" {
		t.Fatalf("%v %v", listed, err)
	}
	if running := w.server.options.Registry.Running(); running != 0 {
		t.Errorf("%d processes keep the sandbox awake", running)
	}
	if _, err := w.processes.Signal(t.Context(), &sandboxv1.SignalRequest{Id: listed.GetProcesses()[0].GetId(), Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	w.logged(`\[web\] sandboxd: ended with exit code 137; started again in 1s\n(.*\n)*.*\[web\] up\n`)
	for _, want := range []bool{true, false} {
		ended, err := w.processes.EndService(t.Context(), &sandboxv1.EndServiceRequest{Name: "web"})
		if err != nil || ended.GetEnded() != want {
			t.Errorf("%v %v", ended, err)
		}
	}
	_, err = w.startDetached(&sandboxv1.StartRequest{Spec: ownShell("true"), Service: "Not a name"})
	expectCode(t, err, connect.CodeInvalidArgument, "the name of a service")
}
