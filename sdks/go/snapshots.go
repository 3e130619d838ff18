package sandbox

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

var snapshots = resource{"agent-sandbox.dev", "v1alpha1", "sandboxsnapshots", "SandboxSnapshot"}

const (
	// Tens of gigabytes of files are copied in five minutes where the file system cannot share them.
	snapshotLimit = 5 * time.Minute
	// A program that dies leaves the snapshot of a fork for this long: more than children take to start, and an hour of disk at most.
	forkSnapshotTTL = time.Hour
	// More than that in one call is a mistake: each is a sandbox with memory of its own.
	forksMax = 1000
	// A call whose context has ended still deletes what it made, for this long.
	dropLimit = 5 * time.Second

	containerDefaultsAnnotation = "agent-sandbox.dev/container-defaults"
	templateRefHashLabel        = "agents.x-k8s.io/sandbox-template-ref-hash"
)

// SnapshotInfo is what the engine says of a snapshot.
type SnapshotInfo struct {
	Name, Namespace, UID string
	// Sandbox is the name of the sandbox that it was taken of.
	Sandbox string
	// State is "pending", "saving", "ready" or "failed"; the last two are final.
	State string
	// Reason says why, in one word, as the Ready condition does.
	Reason, Message string
	CreatedAt       time.Time
	// TakenAt is the instant that the state is from; zero before it is ready.
	TakenAt time.Time
	// SizeBytes is the size of everything that was saved.
	SizeBytes int64
	// MemorySizeBytes is the size of the saved memory; zero where only files were saved.
	MemorySizeBytes int64
	// StandstillMs is how long the sandbox stood still while it was saved, in milliseconds.
	StandstillMs int64
	// Parent is the snapshot that the sandbox itself was started from.
	Parent string
	Node   string
}

// SnapshotOptions say what is saved, and for how long.
type SnapshotOptions struct {
	// Name is the sandbox's name and a random end where it is empty.
	Name string
	// WithoutMemory saves the files alone.
	WithoutMemory bool
	// TTL is after how long the snapshot is deleted; zero: never.
	TTL time.Duration
}

// ForkOptions say how copies are made.
type ForkOptions struct {
	// Name is what the names begin with; they end with -1, -2 and so on. Default: the sandbox's name and a random end.
	Name string
	// WithoutMemory copies the files alone.
	WithoutMemory bool
	// TTL is after how long the copies are deleted; zero: when the sandbox would be.
	TTL time.Duration
	// ReadyTimeout is how long each may take to become ready; zero: three minutes.
	ReadyTimeout time.Duration
}

// ForkResult is one copy, or why there is none.
type ForkResult struct {
	Sandbox *Sandbox
	Err     error
}

type snapshotParts struct {
	Spec   struct{ SandboxName string }
	Status struct {
		NodeName, SandboxUID                     string
		TakenAt                                  time.Time
		SizeBytes, MemorySizeBytes, StandstillMs int64
		Parent                                   struct{ Name string }
	}
}

func snapshotPartsOf(o *object) snapshotParts {
	parts := snapshotParts{}
	// What cannot be read is shown as absent.
	_ = json.Unmarshal(o.Spec, &parts.Spec)
	_ = json.Unmarshal(o.Status, &parts.Status)
	return parts
}

func snapshotInfoOf(o *object) SnapshotInfo {
	parts := snapshotPartsOf(o)
	ready, _ := anyCondition(o, "Ready")
	return SnapshotInfo{
		Name: o.Metadata.Name, Namespace: o.Metadata.Namespace, UID: o.Metadata.UID, Sandbox: parts.Spec.SandboxName,
		State: snapshotState(o), Reason: ready.Reason, Message: ready.Message, CreatedAt: o.Metadata.CreationTimestamp, TakenAt: parts.Status.TakenAt,
		SizeBytes: parts.Status.SizeBytes, MemorySizeBytes: parts.Status.MemorySizeBytes, StandstillMs: parts.Status.StandstillMs,
		Parent: parts.Status.Parent.Name, Node: parts.Status.NodeName,
	}
}

func snapshotState(o *object) string {
	ready, _ := anyCondition(o, "Ready")
	switch {
	case ready.Status == "True":
		return "ready"
	case ready.Reason == "SnapshotFailed":
		return "failed"
	case snapshotPartsOf(o).Status.NodeName == "":
		return "pending"
	}
	return "saving"
}

// snapshotEnds are the reasons that no waiting mends for a sandbox that was there a moment ago.
var snapshotEnds = map[string]errorcode.Code{
	"SnapshotFailed": errorcode.SnapshotFailed, "SandboxNotFound": errorcode.NotFound, "SnapshotsNotAvailable": errorcode.Unsupported,
}

// judgeSnapshot says whether a snapshot is there.
func judgeSnapshot(o *object) verdict {
	if o == nil {
		return failed(errorcode.NotFound, "the snapshot was deleted meanwhile")
	}
	if snapshotState(o) == "ready" {
		return verdict{done: true}
	}
	ready, _ := anyCondition(o, "Ready")
	if code, ended := snapshotEnds[ready.Reason]; ended {
		return failed(code, "snapshot %s/%s: %s", o.Metadata.Namespace, o.Metadata.Name, ready.Message)
	}
	return waiting(firstOf(ready.Message, waitingForController))
}

// Snapshot saves its files and, unless asked for without, its processes under a name; it returns when all of it is on disk, after five minutes at most. The
// sandbox goes on afterwards as it was, awake or asleep. WithFromSnapshot starts from it.
func (b *Sandbox) Snapshot(ctx context.Context, options SnapshotOptions) (*SnapshotInfo, error) {
	taken, err := b.takeSnapshot(ctx, options)
	if err != nil {
		return nil, err
	}
	info := snapshotInfoOf(taken)
	return &info, nil
}

// takeSnapshot deletes again what fails, or what nobody waits for any more.
func (b *Sandbox) takeSnapshot(ctx context.Context, options SnapshotOptions) (*object, error) {
	spec := map[string]any{"sandboxName": b.Name}
	if options.WithoutMemory {
		spec["memory"] = false
	}
	if options.TTL < 0 {
		return nil, newError(errorcode.InvalidArgument, "ttl must be above 0, not %s", options.TTL)
	}
	if options.TTL > 0 {
		spec["ttlSecondsAfterCreation"] = int64(math.Ceil(options.TTL.Seconds()))
	}
	name := firstOf(options.Name, b.Name[:min(50, len(b.Name))]+"-"+newKey()[:8])
	meta := map[string]any{"name": name, "labels": map[string]string{createdByLabel: createdBy}}
	made, err := b.kube.create(ctx, snapshots, b.Namespace, map[string]any{"metadata": meta, "spec": spec})
	if err != nil {
		return nil, err
	}
	ready, err := b.kube.waitWithin(ctx, waitLimit{snapshotLimit, errorcode.WaitTimeout}, snapshots, b.Namespace, name, judgeSnapshot)
	if err == nil {
		if uid := snapshotPartsOf(ready).Status.SandboxUID; uid != "" && b.UID != "" && uid != b.UID {
			err = b.replaced()
		}
	}
	if err != nil {
		b.drop(ctx, snapshots, made)
		return nil, err
	}
	return ready, nil
}

// drop deletes what a call made, also where the call's context has ended.
func (b *Sandbox) drop(ctx context.Context, r resource, made *object) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
	defer cancel()
	// The error that is on its way says more than that the clean-up failed too.
	_ = b.kube.delete(ctx, r, b.Namespace, made.Metadata.Name, made.Metadata.UID)
}

// Fork makes copies of it as it is now, each with its own name and address, by one snapshot whatever their number. It returns when all have started or
// failed; the results are in order. The sandbox goes on as it was. What is secret in its memory is in theirs too.
func (b *Sandbox) Fork(ctx context.Context, count int, options ForkOptions) ([]ForkResult, error) {
	if count < 1 || count > forksMax {
		return nil, newError(errorcode.InvalidArgument, "fork: the number must be from 1 to %d, not %d", forksMax, count)
	}
	if options.ReadyTimeout < 0 {
		return nil, newError(errorcode.InvalidArgument, "ready timeout must be above 0, not %s", options.ReadyTimeout)
	}
	source, err := b.object(ctx)
	if err != nil {
		return nil, err
	}
	saved := SnapshotOptions{Name: "fork-" + newKey()[:8], WithoutMemory: options.WithoutMemory, TTL: forkSnapshotTTL}
	children, err := forkObjects(source, saved.Name, count, options)
	if err != nil {
		return nil, err
	}
	snapshot, err := b.takeSnapshot(ctx, saved)
	if err != nil {
		return nil, err
	}
	defer b.drop(ctx, snapshots, snapshot)
	results := b.startForks(ctx, children, options)
	if ctx.Err() == nil {
		return results, nil
	}
	for _, result := range results {
		if result.Sandbox != nil {
			b.drop(ctx, sandboxes, &object{Metadata: metadata{Name: result.Sandbox.Name, UID: result.Sandbox.UID}})
		}
	}
	return nil, context.Cause(ctx)
}

func (b *Sandbox) startForks(ctx context.Context, children []map[string]any, options ForkOptions) []ForkResult {
	results := make([]ForkResult, len(children))
	var all sync.WaitGroup
	for index, child := range children {
		all.Go(func() { results[index] = b.startFork(ctx, child, options) })
	}
	all.Wait()
	return results
}

func (b *Sandbox) startFork(ctx context.Context, child map[string]any, options ForkOptions) ForkResult {
	made, err := b.kube.create(ctx, sandboxes, b.Namespace, child)
	if err != nil {
		return ForkResult{Err: err}
	}
	box := newSandbox(b.engine, made)
	limit := options.ReadyTimeout
	if limit == 0 {
		limit = readyTimeoutDefault
	}
	if err := box.awaitReady(ctx, made, limit); err != nil {
		b.drop(ctx, sandboxes, made)
		return ForkResult{Err: err}
	}
	return ForkResult{Sandbox: box}
}

// forkObjects are the children: the source's spec and its user's labels, and nothing that the engine gave to the source.
func forkObjects(source *object, snapshot string, count int, options ForkOptions) ([]map[string]any, error) {
	spec, err := specMap(source)
	if err != nil {
		return nil, err
	}
	delete(spec, "operatingMode")
	spec["restoreFrom"] = map[string]any{"snapshotName": snapshot}
	if options.TTL != 0 {
		if spec["shutdownTime"], err = shutdownTime(time.Now(), options.TTL); err != nil {
			return nil, err
		}
		spec["shutdownPolicy"] = "Delete"
	}
	labels, annotations := map[string]string{}, map[string]string{}
	for key, value := range source.Metadata.Labels {
		// The template that it was made from has a network policy, which is for its forks too.
		if !isReservedLabel(key) || key == templateRefHashLabel {
			labels[key] = value
		}
	}
	labels[createdByLabel] = createdBy
	for _, key := range []string{servicesAnnotation, containerDefaultsAnnotation} {
		if value, known := source.Metadata.Annotations[key]; known {
			annotations[key] = value
		}
	}
	name := source.Metadata.Name
	prefix := firstOf(options.Name, name[:min(40, len(name))]+"-"+newKey()[:8])
	children := make([]map[string]any, 0, count)
	for index := range count {
		meta := map[string]any{"name": prefix + "-" + strconv.Itoa(index+1), "labels": labels, "annotations": annotations}
		children = append(children, map[string]any{"metadata": meta, "spec": spec})
	}
	return children, nil
}

func isReservedLabel(key string) bool {
	return strings.HasPrefix(key, sandboxes.group+"/") || strings.HasPrefix(key, claims.group+"/")
}

func specMap(o *object) (map[string]any, error) {
	spec := map[string]any{}
	if err := json.Unmarshal(o.Spec, &spec); err != nil {
		return nil, wrapError(errorcode.ProtocolError, err, "the Sandbox object")
	}
	return spec, nil
}

// ListSnapshots returns all snapshots of a namespace.
func ListSnapshots(ctx context.Context, options ...GetOption) ([]SnapshotInfo, error) {
	s, err := settingsOf(options, GetOption.get)
	if err != nil {
		return nil, err
	}
	infos := []SnapshotInfo{}
	for item, err := range (&kubeClient{s.engine}).list(ctx, snapshots, s.namespace, "") {
		if err != nil {
			return nil, err
		}
		infos = append(infos, snapshotInfoOf(item))
	}
	return infos, nil
}

// DeleteSnapshot deletes the snapshot of that name; one that is not there is fine. Sandboxes that were started from it are not touched.
func DeleteSnapshot(ctx context.Context, name string, options ...GetOption) error {
	s, err := settingsOf(options, GetOption.get)
	if err != nil {
		return err
	}
	return (&kubeClient{s.engine}).delete(ctx, snapshots, s.namespace, name, "")
}

// inherited are the fields that a sandbox from a snapshot takes over of the one that it was taken of.
var inherited = []string{
	"podTemplate", "volumeClaimTemplates", "service", "suspensionStrategy", "autoSuspension", "wakePolicy", "podFailurePolicy",
}

// inherit finds what runs in a sandbox from a snapshot, where the caller has not said it.
func (s *settings) inherit(ctx context.Context) error {
	if s.fromSnapshot == "" || s.image != "" || s.spec["podTemplate"] != nil {
		return nil
	}
	if s.describesPod() {
		return newError(errorcode.InvalidArgument, "what runs is taken from the sandbox of the snapshot; give WithImage too, to say everything anew")
	}
	kube := &kubeClient{s.engine}
	snapshot, err := kube.get(ctx, snapshots, s.namespace, s.fromSnapshot)
	if err != nil {
		return err
	}
	parts := snapshotPartsOf(snapshot)
	source, err := kube.get(ctx, sandboxes, s.namespace, parts.Spec.SandboxName)
	if code := CodeOf(err); err != nil && code != errorcode.NotFound {
		return err
	}
	if err != nil || parts.Status.SandboxUID != "" && source.Metadata.UID != parts.Status.SandboxUID {
		return newError(errorcode.InvalidArgument, "sandbox '%s' of snapshot '%s' is gone; say what it was made of with WithImage and the options beside it",
			parts.Spec.SandboxName, s.fromSnapshot)
	}
	spec, err := specMap(source)
	if err != nil {
		return err
	}
	maps.DeleteFunc(spec, func(field string, _ any) bool { return !slices.Contains(inherited, field) })
	s.inherited = spec
	return nil
}

// describesPod says whether an option describes the Pod.
func (s *settings) describesPod() bool {
	words := []string{s.cpu, s.memory, s.disk, s.workdir, s.runtime}
	isSaid := slices.ContainsFunc(words, func(word string) bool { return word != "" })
	return isSaid || len(s.env) > 0 || len(s.volumes) > 0 || len(s.command) > 0 || s.usesImageCommand || len(s.podTemplate) > 0
}
