package ociruntime

import (
	"testing"

	"agent-sandbox.dev/native/internal/hosterr"
)

func TestRunStartsNothingUnderRuncThatTheOperatorDidNotAllow(t *testing.T) {
	request := RunRequest{ID: "a", Runtime: Runc, Rootfs: "r", Process: Process{Argv: []string{"/bin/true"}, Cwd: "/"}}
	if err := request.Check(); err != nil {
		t.Fatal(err)
	}
	e := &Engine{features: map[string]Features{Runc: {Runtime: Runc, Available: true}}}
	if _, err := e.Run(t.Context(), request); !hosterr.Is(err, hosterr.PermissionDenied) {
		t.Errorf("got %v, want permission-denied", err)
	}
}
