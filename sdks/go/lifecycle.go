package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

// Info is what the engine says of a sandbox.
type Info struct {
	Name, Namespace, UID string
	// State is "ready", "starting", "suspended", "crash-loop", "finished", "failed", "expired" or "deleting".
	State string
	// Reason says why, in one word, as the Ready or the CrashLoop condition does.
	Reason, Message string
	Image           string
	CreatedAt       time.Time
	// ShutdownAt is when it is deleted; zero where it never is.
	ShutdownAt  time.Time
	Addresses   []string
	Node        string
	Labels      map[string]string
	Annotations map[string]string
	Conditions  []Condition
}

// Condition is one of the conditions of a Sandbox.
type Condition struct {
	Type, Status, Reason, Message string
	ObservedGeneration            int64
	LastTransitionTime            time.Time
}

type sandboxSpec struct {
	OperatingMode, WakePolicy string
	AutoSuspension            *struct{}
	ShutdownTime              time.Time
	PodTemplate               struct {
		Spec struct {
			Containers []struct{ Name, Image string }
		}
	}
}

func specOf(o *object) *sandboxSpec {
	spec := &sandboxSpec{}
	// What cannot be read is shown as absent.
	_ = json.Unmarshal(o.Spec, spec)
	return spec
}

// stateOf is the phase in the words of Info. A condition about an older spec says nothing about the change that was just made.
func stateOf(found phase) string {
	switch {
	case found.Phase == "deleting":
		return "deleting"
	case !found.IsObserved || found.Phase == "restoring":
		return "starting"
	case found.WakesOnTraffic || found.IsHeld:
		return "suspended"
	case found.Phase == "restore-failed":
		return "failed"
	}
	return found.Phase
}

func infoOf(o *object) *Info {
	spec, told, state := specOf(o), condition{}, stateOf(phaseOf(o))
	kind := "Ready"
	if state == "crash-loop" {
		kind = "CrashLoop"
	}
	if found, known := conditionOf(o, kind); known {
		told = found
	}
	var status struct {
		PodIPs     []string
		NodeName   string
		Conditions []Condition
	}
	if len(o.Status) > 0 {
		_ = json.Unmarshal(o.Status, &status)
	}
	info := &Info{
		Name: o.Metadata.Name, Namespace: o.Metadata.Namespace, UID: o.Metadata.UID, State: state,
		Reason: told.Reason, Message: told.Message, CreatedAt: o.Metadata.CreationTimestamp, ShutdownAt: spec.ShutdownTime,
		Addresses: status.PodIPs, Node: status.NodeName, Labels: o.Metadata.Labels, Annotations: o.Metadata.Annotations, Conditions: status.Conditions,
	}
	if len(spec.PodTemplate.Spec.Containers) > 0 {
		info.Image = spec.PodTemplate.Spec.Containers[0].Image
	}
	return info
}

func (b *Sandbox) object(ctx context.Context) (*object, error) {
	found, err := b.kube.get(ctx, sandboxes, b.Namespace, b.Name)
	if err == nil && b.UID != "" && found.Metadata.UID != b.UID {
		return nil, b.replaced()
	}
	return found, err
}

// Object returns the Sandbox object as it is now, as JSON.
func (b *Sandbox) Object(ctx context.Context) (json.RawMessage, error) {
	var found json.RawMessage
	if err := b.kube.do(ctx, http.MethodGet, sandboxes.path(b.Namespace, b.Name), nil, nil, &found, jsonType); err != nil {
		return nil, err
	}
	var named struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(found, &named); err != nil {
		return nil, wrapError(errorcode.ProtocolError, err, "the Sandbox object")
	}
	if b.UID != "" && named.Metadata.UID != b.UID {
		return nil, b.replaced()
	}
	return found, nil
}

// Info returns what the engine says of it. Asking does not keep a sandbox awake.
func (b *Sandbox) Info(ctx context.Context) (*Info, error) {
	found, err := b.object(ctx)
	if err != nil {
		return nil, err
	}
	return infoOf(found), nil
}

// WaitFor waits until it is in a state, and tells how it is then; `not-found` where it was deleted or replaced. The context limits
// how long.
func (b *Sandbox) WaitFor(ctx context.Context, state string) (*Info, error) {
	var info *Info
	err := b.kube.follow(ctx, sandboxes, b.Namespace, b.Name, func(found *object) bool {
		if info = nil; found == nil || b.UID != "" && found.Metadata.UID != b.UID {
			return false
		}
		info = infoOf(found)
		return info.State != state
	})
	if err == nil && info == nil {
		err = b.replaced()
	}
	return info, err
}

func (b *Sandbox) replaced() *Error {
	return newError(errorcode.NotFound, "sandbox %s/%s was replaced by another of its name", b.Namespace, b.Name)
}

// patch changes this very sandbox, and no other of its name.
func (b *Sandbox) patch(ctx context.Context, patch map[string]any) (*object, error) {
	changed, err := b.kube.patch(ctx, sandboxes, b.Namespace, b.Name, patch)
	return changed, b.unlessReplaced(err)
}

// unlessReplaced tells a refusal of the uid from other failures: servers call it a conflict, or a field that cannot change.
func (b *Sandbox) unlessReplaced(err error) error {
	var own *Error
	if errors.As(err, &own) && (own.Code == errorcode.Conflict || own.Code == errorcode.InvalidArgument && strings.Contains(own.Message, "metadata.uid")) {
		return b.replaced()
	}
	return err
}

// guarded is a patch that fails where the sandbox was replaced by another of its name.
func (b *Sandbox) guarded(spec map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"uid": b.UID}, "spec": spec}
}

// Ready waits until it is ready, three minutes at most; a Pod that shows why it never will ends the wait early.
func (b *Sandbox) Ready(ctx context.Context) error {
	known, err := b.object(ctx)
	if err != nil {
		return err
	}
	return b.awaitReady(ctx, known, readyTimeoutDefault)
}

// suspendLimit is longer than processes get to end by themselves.
const suspendLimit = 2 * time.Minute

// Suspend puts it to sleep and waits for that; traffic wakes it.
func (b *Sandbox) Suspend(ctx context.Context) error { return b.suspend(ctx, "OnTraffic") }

// SuspendAndHold puts it to sleep until Resume; traffic is refused.
func (b *Sandbox) SuspendAndHold(ctx context.Context) error { return b.suspend(ctx, "Never") }

func (b *Sandbox) suspend(ctx context.Context, wakePolicy string) error {
	patch := b.guarded(map[string]any{"operatingMode": "Suspended", "wakePolicy": wakePolicy})
	// A sandbox that traffic has woken is still suspended by its spec: the suspension has to count from now.
	patch["metadata"].(map[string]any)["annotations"] = map[string]any{"agent-sandbox.dev/suspended-at": nil}
	if _, err := b.patch(ctx, patch); err != nil {
		return err
	}
	_, err := b.kube.waitWithin(ctx, waitLimit{suspendLimit, errorcode.WaitTimeout}, sandboxes, b.Namespace, b.Name, judgeSuspended)
	return err
}

// Resume wakes it and waits until it is ready.
func (b *Sandbox) Resume(ctx context.Context) error {
	return b.resume(ctx, b.guarded(map[string]any{"operatingMode": "Running"}))
}

// ResumeCold wakes it as Resume does, and gives up memory that was saved: it starts from its files alone.
func (b *Sandbox) ResumeCold(ctx context.Context) error {
	seen, err := b.object(ctx)
	if err != nil {
		return err
	}
	patch := b.guarded(map[string]any{"operatingMode": "Running"})
	if saved := savedMemory(seen); saved != "" {
		patch["metadata"].(map[string]any)["annotations"] = map[string]any{coldStart: saved}
	}
	return b.resume(ctx, patch)
}

func (b *Sandbox) resume(ctx context.Context, patch map[string]any) error {
	known, err := b.patch(ctx, patch)
	if err != nil {
		return err
	}
	return b.awaitReady(ctx, known, readyTimeoutDefault)
}

// SetTimeout has it deleted this long from now, whatever was set before; zero: never.
func (b *Sandbox) SetTimeout(ctx context.Context, ttl time.Duration) error {
	if ttl == 0 {
		return b.setEnd(ctx, map[string]any{"shutdownTime": nil, "shutdownPolicy": nil})
	}
	end, err := shutdownTime(time.Now(), ttl)
	if err != nil {
		return err
	}
	return b.setEnd(ctx, map[string]any{"shutdownTime": end, "shutdownPolicy": "Delete"})
}

// Extend lets it live this much longer than was set, and returns when it ends then; `conflict` where no end is set.
func (b *Sandbox) Extend(ctx context.Context, by time.Duration) (time.Time, error) {
	info, err := b.Info(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if info.ShutdownAt.IsZero() {
		return time.Time{}, newError(errorcode.Conflict, "sandbox %s/%s has no end to extend", b.Namespace, b.Name)
	}
	end, err := shutdownTime(info.ShutdownAt, by)
	if err != nil {
		return time.Time{}, err
	}
	if err := b.setEnd(ctx, map[string]any{"shutdownTime": end, "shutdownPolicy": "Delete"}); err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339, end)
}

func (b *Sandbox) setEnd(ctx context.Context, end map[string]any) error {
	if b.ClaimName != "" {
		patch := map[string]any{"metadata": map[string]any{"uid": b.claimUID}, "spec": map[string]any{"lifecycle": end}}
		_, err := b.kube.patch(ctx, claims, b.Namespace, b.ClaimName, patch)
		return b.unlessReplaced(err)
	}
	_, err := b.patch(ctx, b.guarded(end))
	return err
}

// Delete deletes it, or the claim that holds it. One that is gone already, or was replaced by another of its name, is fine.
func (b *Sandbox) Delete(ctx context.Context) error {
	if b.ClaimName != "" {
		return b.kube.delete(ctx, claims, b.Namespace, b.ClaimName, b.claimUID)
	}
	return b.kube.delete(ctx, sandboxes, b.Namespace, b.Name, b.UID)
}

// AwaitGone waits until a deleted sandbox is gone.
func (b *Sandbox) AwaitGone(ctx context.Context) error {
	_, err := b.kube.waitWithin(ctx, waitLimit{suspendLimit, errorcode.WaitTimeout}, sandboxes, b.Namespace, b.Name, judgeGone)
	return err
}

// LogOptions choose what Logs returns.
type LogOptions struct {
	// Follow goes on with what is printed from now on.
	Follow bool
	// TailLines leaves out all but the last lines; zero: none.
	TailLines int
	// Since leaves out what is older; zero: nothing. Rounded up to whole seconds.
	Since      time.Duration
	Timestamps bool
	// Previous reads those of the run before the last restart.
	Previous bool
	// Container is the sandbox's own where it is empty.
	Container string
}

// Logs returns what the sandbox's own process printed, as bytes; close it.
func (b *Sandbox) Logs(ctx context.Context, options LogOptions) (io.ReadCloser, error) {
	found, err := b.object(ctx)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	container := options.Container
	if containers := specOf(found).PodTemplate.Spec.Containers; container == "" && len(containers) > 0 {
		container = containers[0].Name
	}
	if container != "" {
		query.Set("container", container)
	}
	if options.Since > 0 {
		query.Set("sinceSeconds", strconv.Itoa(int(math.Ceil(options.Since.Seconds()))))
	}
	if options.Previous {
		query.Set("previous", "true")
	}
	if options.Follow {
		query.Set("follow", "true")
	}
	if options.TailLines > 0 {
		query.Set("tailLines", strconv.Itoa(options.TailLines))
	}
	if options.Timestamps {
		query.Set("timestamps", "true")
	}
	response, err := b.kube.open(ctx, http.MethodGet, pods.path(b.Namespace, b.Name)+"/log", query, nil, "")
	if err != nil {
		return nil, err
	}
	return &typedBody{ctx, response.Body}, nil
}
