package sandbox

import (
	"testing"

	"agent-sandbox.dev/sdk/errorcode"
)

func TestErrorSaysWhatToDoOnce(t *testing.T) {
	missing := newError(errorcode.WarmPoolNotFound, "pool %q not found", "a")
	if got, want := missing.Error(), `pool "a" not found. Create the pool, or name another one.`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	held := newError(errorcode.SandboxHeld, "sandbox a/b is suspended by its owner; resume it with agent-sandbox resume b")
	if held.Error() != held.Message {
		t.Errorf("two pieces of advice: %q", held.Error())
	}
	wrapped := wrapError(errorcode.ConnectionLost, missing, "the connection broke")
	if got, want := wrapped.Message, `the connection broke: pool "a" not found`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
