package ociruntime

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
)

// RestoreSource is what a container is started from instead of its program: one of the containers of a saved state.
type RestoreSource struct {
	Saved     string `json:"saved"`
	Container string `json:"container"`
}

func (s *RestoreSource) check(r RunRequest) error {
	if r.Runtime != Runsc {
		return hosterr.New(hosterr.Unsupported, "restoreFrom: only runsc restores a sandbox")
	}
	if r.Waiting || r.Connect != nil {
		return hosterr.New(hosterr.InvalidArgument, "restoreFrom: a sandbox that is restored has its network and does not wait for one")
	}
	return errors.Join(instance.CheckID("restoreFrom.saved", s.Saved), instance.CheckID("restoreFrom.container", s.Container))
}

// restoredName is the record of a root container whose memory has been read as a whole.
const restoredName = "restored.json"

func (e *Engine) hasRestored(id string) bool {
	var at used
	return e.shelf.Read(e.inDir(id, restoredName), &at) == nil
}

// restorePlan is the start of one container from a saved state.
type restorePlan struct {
	from      manifest
	was       manifestContainer
	sandboxID string
	// isLast: the guest goes on with this container.
	isLast bool
	// canWait: the sentry waits with the guest until containerManager.Resume is called.
	canWait bool
	// compared returns when all of the state has been read: nil if it is what was written. That takes place while the sandbox is made and loads.
	compared func() error
}

// planRestore finds what a container is restored from, and refuses what does not fit. For a root container it also begins to read all of it: a guest
// that has gone on with damaged memory has changed its files, and no later attempt could make that good.
func (e *Engine) planRestore(r RunRequest) (*restorePlan, error) {
	m, err := e.readSaved(r.RestoreFrom.Saved)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Containers, func(c manifestContainer) bool { return c.ID == r.RestoreFrom.Container })
	if i < 0 || m.Containers[i].Root != (r.SandboxID == "") {
		return nil, hosterr.New(hosterr.InvalidArgument, "restoreFrom.container: %s is no such container of saved state %s", r.RestoreFrom.Container, m.ID)
	}
	digest, err := e.rootfs.SourceDigest(r.Rootfs)
	if err != nil {
		return nil, err
	}
	if digest != m.Containers[i].SourceDigest {
		return nil, hosterr.New(hosterr.RestoreRefused, "saved state %s was made on another image than root file system %s has", m.ID, r.Rootfs)
	}
	if err := e.fits(m); err != nil {
		return nil, err
	}
	plan := &restorePlan{from: m, was: m.Containers[i], sandboxID: r.SandboxID, compared: func() error { return nil }}
	if plan.canWait, err = e.canWait(m.RuntimeVersion); err != nil {
		return nil, err
	}
	count, err := e.restoredInto(m, r.SandboxID)
	if err != nil {
		return nil, err
	}
	plan.isLast = count+1 == len(m.Containers)
	if r.SandboxID != "" {
		return plan, e.checkRestoring(r)
	}
	plan.sandboxID = r.ID
	if err := e.checkUnused(m, r.ID); err != nil {
		return nil, err
	}
	plan.compared = sync.OnceValue(func() error { return e.verify(m) })
	go func() { _ = plan.compared() }()
	return plan, nil
}

// checkRestoring refuses to bring a container into a sandbox that is not restored from the same state.
func (e *Engine) checkRestoring(r RunRequest) error {
	root, err := e.readRecord(r.SandboxID)
	if err != nil {
		return err
	}
	if root.RestoredFrom != r.RestoreFrom.Saved || e.hasRestored(root.ID) {
		return hosterr.New(hosterr.InvalidArgument, "restoreFrom: sandbox %s is not being restored from %s", r.SandboxID, r.RestoreFrom.Saved)
	}
	return nil
}

// checkUnused refuses a second copy of one sandbox, unless its state is for several.
func (e *Engine) checkUnused(m manifest, id string) error {
	if m.Reusable {
		return nil
	}
	saved := m.ID
	records, err := e.records()
	if err != nil {
		return err
	}
	for _, other := range records {
		if other.RestoredFrom == saved && other.ID != id && other.isRoot() && e.mayRun(other) {
			return hosterr.New(hosterr.Busy, "saved state %s has been restored into sandbox %s", saved, other.ID)
		}
		if p, err := e.readPause(other.ID); err != nil || (p != nil && p.Saved == saved && e.isAlive(other)) {
			return errors.Join(err, hosterr.New(hosterr.Busy, "sandbox %s, of which %s was saved, is still there", other.ID, saved))
		}
	}
	return nil
}

// restoredInto is how many containers of a state have been restored into a sandbox: its guest goes on with the last of them.
func (e *Engine) restoredInto(m manifest, sandboxID string) (int, error) {
	if sandboxID == "" {
		return 0, nil
	}
	records, err := e.records()
	count := 0
	for _, r := range records {
		if r.SandboxID == sandboxID && r.RestoredFrom == m.ID {
			count++
		}
	}
	return count, err
}

// goOn watches the restore of a sandbox, and says whether its guest goes on: what listened in it then answers.
func (e *Engine) goOn(rec record, m manifest) (bool, error) {
	count, err := e.restoredInto(m, rec.SandboxID)
	if err != nil || count < len(m.Containers) {
		return false, err
	}
	root, err := e.readRecord(rec.SandboxID)
	if err == nil {
		e.watchRestore(root)
	}
	return err == nil, err
}

// endHalfRestored ends a sandbox of which a container could not be restored: the sentry takes no second attempt.
func (e *Engine) endHalfRestored(ctx context.Context, r RunRequest, why error) error {
	if r.RestoreFrom == nil || r.SandboxID == "" || !hosterr.Is(why, hosterr.RestoreFailed) {
		return nil
	}
	return e.Delete(ctx, r.SandboxID)
}

// restoreArgs are runsc's for a container of a saved state. The guest runs before all of its pages are read.
func (e *Engine) restoreArgs(r RunRequest, dir, pid string) []string {
	return []string{"restore", "--detach", "--background", "--bundle=" + dir, "--pid-file=" + pid, "--image-path=" + e.savedDir(r.RestoreFrom.Saved).Path(), runtimeID(r.ID)}
}

// restoreWait is one sandbox whose pages are being read; err counts once done is closed.
type restoreWait struct {
	done chan struct{}
	err  error
}

// watchRestore waits for the end of a restore and writes it down, once for each sandbox.
func (e *Engine) watchRestore(root record) *restoreWait {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w, found := e.restores[root.ID]; found {
		return w
	}
	w := &restoreWait{done: make(chan struct{})}
	e.restores[root.ID] = w
	go func() {
		defer close(w.done)
		w.err = e.awaitRestore(root)
	}()
	return w
}

func (e *Engine) awaitRestore(root record) error {
	if e.hasRestored(root.ID) {
		return nil
	}
	if err := callSentry(context.Background(), e.controlSocket(root.ID), "containerManager.WaitRestore", nil, nil); err != nil {
		m, readErr := e.readSaved(root.RestoredFrom)
		return errors.Join(notReadAsAWhole(m, err), readErr)
	}
	// The state first: it is never again taken for one that fits the files.
	return errors.Join(e.markUsed(root.RestoredFrom), durable.Write(e.inDir(root.ID, restoredName), &used{At: time.Now().UTC()}))
}

// watchRestores finds the restores of helpers before this one.
func (e *Engine) watchRestores() error {
	records, err := e.records()
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.RestoredFrom != "" && r.isRoot() && r.Running && e.isAlive(r) {
			e.watchRestore(r)
		}
	}
	return nil
}

// WaitRestored is whether the memory of a sandbox has been read as a whole before the time is up.
func (e *Engine) WaitRestored(ctx context.Context, id string, wait time.Duration) (bool, error) {
	r, err := e.readRecord(id)
	if err != nil {
		return false, err
	}
	if wait < 0 || wait > waitMax {
		return false, hosterr.New(hosterr.InvalidArgument, "waitMs: %s is not within 0 to %s", wait, waitMax)
	}
	if r.RestoredFrom == "" || !r.isRoot() {
		return false, hosterr.New(hosterr.InvalidArgument, "id: %s is not the root container of a sandbox that was restored", id)
	}
	if !r.Running {
		return false, hosterr.New(hosterr.Busy, "container %s has not started", id)
	}
	return e.watchRestore(r).within(ctx, wait)
}

// within is whether the restore has ended well before the time is up.
func (w *restoreWait) within(ctx context.Context, wait time.Duration) (bool, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var left error
	select {
	case <-w.done:
	case <-timer.C:
	case <-ctx.Done():
		left = ctx.Err()
	}
	// Of several that are ready select takes any: an end that is known comes before the end of the time and of the caller.
	select {
	case <-w.done:
		return w.err == nil, w.err
	default:
		return false, left
	}
}

// forgetRestore ends the watch of a restore whose container is removed.
func (e *Engine) forgetRestore(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.restores, id)
}

// awaitStart returns once the first processes of a restored sandbox are there to be waited for.
func (e *Engine) awaitStart(r record) {
	if r.RestoredFrom == "" {
		return
	}
	root, err := e.readRecord(r.SandboxID)
	if err != nil {
		return
	}
	<-e.watchRestore(root).done
}
