package sandbox

import (
	"context"
	"errors"
	"strings"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

const (
	// A sandbox that is not up by then waits for something that only its Pod can tell. Most are up before.
	podWatchAfter     = 250 * time.Millisecond
	podNameAnnotation = "agents.x-k8s.io/pod-name"
)

// waitFor watches one object until judge has decided, or fails with ready-timeout.
func (k *kubeClient) waitFor(ctx context.Context, r resource, namespace, name string, limit time.Duration, judge func(*object) verdict) (*object, error) {
	return k.waitWithin(ctx, waitLimit{limit, errorcode.ReadyTimeout}, r, namespace, name, judge)
}

// waitLimit is how long to wait, and the code of the error after that.
type waitLimit struct {
	duration time.Duration
	code     errorcode.Code
}

func (k *kubeClient) waitWithin(ctx context.Context, limit waitLimit, r resource, namespace, name string, judge func(*object) verdict) (*object, error) {
	last, timeUp := waitingForController, newError(limit.code, "")
	ctx, cancel := context.WithTimeoutCause(ctx, limit.duration, timeUp)
	defer cancel()
	var found *object
	var decided *Error
	err := k.follow(ctx, r, namespace, name, func(state *object) bool {
		switch v := judge(state); {
		case v.done:
			found = state
			return false
		case v.err != nil:
			decided = v.err
			return false
		default:
			last = v.why
			return true
		}
	})
	if decided != nil {
		return nil, decided
	}
	if errors.Is(err, timeUp) {
		what := strings.ToLower(r.kind) + " " + namespace + "/" + name
		return nil, newError(limit.code, "%s was not there within %s; last seen: %s", what, limit.duration, last)
	}
	return found, err
}

// waitReady waits until a Sandbox is ready; a Pod that shows why it never will ends the wait early.
func (k *kubeClient) waitReady(ctx context.Context, known *object, limit time.Duration) (*object, error) {
	namespace, name := known.Metadata.Namespace, known.Metadata.Name
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := k.watchPod(ctx, namespace, firstOf(known.Metadata.Annotations[podNameAnnotation], name)); err != nil {
			cancel(newError(err.Code, "sandbox %s/%s: %s", namespace, name, err.Message))
		}
	}()
	ready, err := k.waitFor(ctx, sandboxes, namespace, name, limit, judgeSandbox)
	cancel(nil)
	<-watched
	return ready, err
}

// watchPod returns what the Pod tells; nil where it cannot be watched.
func (k *kubeClient) watchPod(ctx context.Context, namespace, name string) *Error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(podWatchAfter):
	}
	var told *Error
	// A Pod that cannot be watched tells nothing; the Sandbox itself is waited for anyway.
	_ = k.follow(ctx, pods, namespace, name, func(state *object) bool {
		told = judgePod(state, k.engine.isLocal).err
		return told == nil
	})
	return told
}
