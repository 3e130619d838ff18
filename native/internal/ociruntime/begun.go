package ociruntime

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// begunName is the record of a restore whose guest may have run: it is on the disk before the guest goes on, and the end of the restore has another.
const begunName = "begun.json"

// begun is when the guest of a state was let go on, and in which sandbox.
type begun struct {
	At      time.Time `json:"at"`
	Sandbox string    `json:"sandbox"`
}

// Check refuses what does not say when and where.
func (b *begun) Check() error {
	if b.At.IsZero() {
		return errors.New("at: is missing")
	}
	return instance.CheckID("sandbox", b.Sandbox)
}

// begunFile is beside the files of a state that is used once, where it outlasts the sandbox. A state that may be used again fits the next clones
// whatever became of these: there it goes with the sandbox.
func (e *Engine) begunFile(m manifest, sandboxID string) confine.Entry {
	if m.Reusable {
		return e.inDir(sandboxID, begunName)
	}
	return e.savedDir(m.ID, begunName)
}

// coldAdvice is what is left to do about memory that its files have left behind.
const coldAdvice = "agent-sandbox resume --cold starts from the files alone"

// notReadAsAWhole is why a guest that had gone on has ended. Where the state may be used again, the next attempt has other files.
func notReadAsAWhole(m manifest, why error) error {
	if m.Reusable {
		return hosterr.New(hosterr.RestoreFailed, "memory of saved state %s could not be read: %v", m.ID, why)
	}
	return hosterr.New(hosterr.RestoreFailed, "memory of saved state %s could not be read after its guest had gone on, and does not fit the files any more (%v); %s", m.ID, why, coldAdvice)
}

// hasBegun is whether the guest of a state may have run in a sandbox.
func (e *Engine) hasBegun(m manifest, sandboxID string) bool {
	var b begun
	return e.shelf.Read(e.begunFile(m, sandboxID), &b) == nil && b.Sandbox == sandboxID
}

// waitsAnnotation has a sentry wait for containerManager.Resume between the load of a state and the first step of its guest; native/runsc/changes.json has the wait.
const waitsAnnotation = "dev.agent-sandbox.restore-waits"

// What the stack of the goroutine that waits has in it. The second is there only once the stop is counted that Resume ends.
const (
	waitFrame  = "boot.(*restorer).awaitResume("
	sleepFrame = "time.Sleep("
)

func waitsToGoOn(stacks string) bool {
	for _, goroutine := range strings.Split(stacks, "\n\n") {
		if strings.Contains(goroutine, waitFrame) && strings.Contains(goroutine, sleepFrame) {
			return true
		}
	}
	return false
}

// waitLine is what the sentry writes to its log when it begins to wait.
const waitLine = "Restored kernel waits for Resume"

// waitLog is the log of a sentry that is to come to wait. It costs the sentry nothing to look there first: its stacks are asked for where there is something to see in them.
type waitLog struct {
	entry   confine.Entry
	size    int64
	hasLine bool
}

// hasSaidSo reads the log where it has grown since the last look.
func (l *waitLog) hasSaidSo() bool {
	stat, err := l.entry.Lstat()
	if err != nil || stat.Size == l.size || l.hasLine {
		return l.hasLine
	}
	l.size = stat.Size
	text, err := l.entry.ReadFile(2 * logBytesMax)
	l.hasLine = err == nil && bytes.Contains(text, []byte(waitLine))
	return l.hasLine
}

// isWaiting asks a sentry whether its guest is complete and waits; one that does not answer does not.
func (e *Engine) isWaiting(ctx context.Context, sandboxID string) bool {
	var stacks string
	err := callSentry(ctx, e.controlSocket(sandboxID), "debug.Stacks", nil, &stacks)
	return err == nil && waitsToGoOn(stacks)
}

// canWait is whether the program of a build has the wait: a build of before, or of others, lets the guest go on by itself.
func (e *Engine) canWait(build string) (bool, error) {
	e.mu.Lock()
	can, known := e.waits[build]
	e.mu.Unlock()
	if known {
		return can, nil
	}
	f, err := e.builds.program(build).Open(unix.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if can, err = contains(f, []byte(waitsAnnotation)); err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waits[build] = can
	return can, nil
}

// contains is whether a text is in what a reader has.
func contains(r io.Reader, text []byte) (bool, error) {
	buffer := make([]byte, readBytes)
	kept := 0
	for {
		n, err := r.Read(buffer[kept:])
		if bytes.Contains(buffer[:kept+n], text) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		// It may begin at the end of what was read.
		end := kept + n
		kept = copy(buffer, buffer[max(0, end-len(text)+1):end])
	}
}

// launchRestore starts a container from a saved state. With the last one its guest goes on, and not before all of the state has been compared
// and it is on the disk that the guest goes on: from there on, no other sandbox is made of it.
func (e *Engine) launchRestore(ctx context.Context, r RunRequest, by driver, plan *restorePlan) error {
	goOn := plan.isLast
	if goOn && !plan.canWait {
		if err := errors.Join(plan.compared(), e.markBegun(plan)); err != nil {
			return err
		}
		goOn = false
	}
	wait, err := e.launch(ctx, r, by, nil)
	if err != nil {
		return errors.Join(err, plan.compared())
	}
	launched := &restoreWait{done: make(chan struct{})}
	go func() {
		defer close(launched.done)
		launched.err = wait()
	}()
	if goOn {
		err = e.letGoOn(ctx, launched, plan)
	}
	<-launched.done
	// What is damaged says more than what the sentry made of it.
	return errors.Join(plan.compared(), err, launched.err)
}

const (
	// askEvery is a fraction of what a sentry takes to load a state.
	askEvery = 3 * time.Millisecond
	// lookAnyway is after how many looks at the log, which may have been emptied, the sentry itself is asked.
	lookAnyway = 100
)

// letGoOn returns when the guest has been let go on, or its sentry has ended.
func (e *Engine) letGoOn(ctx context.Context, launched *restoreWait, plan *restorePlan) error {
	ctx, cancel := untilDeadline(ctx)
	defer cancel()
	log := &waitLog{entry: e.inDir(plan.sandboxID, "runsc.boot.log")}
	for turn := 1; !(log.hasSaidSo() || turn%lookAnyway == 0) || !e.isWaiting(ctx, plan.sandboxID); turn++ {
		select {
		case <-launched.done:
			return nil
		case <-time.After(askEvery):
		}
	}
	err := plan.compared()
	if err == nil {
		err = e.markBegun(plan)
	}
	if err == nil {
		err = e.resume(ctx, plan.sandboxID)
	}
	if err != nil {
		// The runtime's call, which waits for the sentry, ends with it.
		return errors.Join(err, e.endUnknown(ctx, plan.sandboxID))
	}
	return nil
}

func (e *Engine) markBegun(plan *restorePlan) error {
	return durable.Write(e.begunFile(plan.from, plan.sandboxID), &begun{At: time.Now().UTC(), Sandbox: plan.sandboxID})
}

// resume lets a guest go on that waits.
func (e *Engine) resume(ctx context.Context, sandboxID string) error {
	if err := callSentry(ctx, e.controlSocket(sandboxID), "containerManager.Resume", nil, nil); err != nil {
		return hosterr.New(hosterr.RestoreFailed, "sandbox %s cannot go on: %v", sandboxID, err)
	}
	return nil
}

// settledAfter is far longer than a sentry takes to carry out a call that a helper had sent when it was killed.
const settledAfter = 50 * time.Millisecond

// takeOver continues a restore that a helper before was killed in. False: nothing of the guest has run, and it may be begun anew.
func (e *Engine) takeOver(ctx context.Context, r record) (made record, taken bool, err error) {
	m, err := e.readSaved(r.RestoredFrom)
	if hosterr.Is(err, hosterr.NotFound) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	time.Sleep(settledAfter)
	// Where there is another container, all of the state was compared before that one was called started.
	if !e.hasBegun(m, r.SandboxID) && (r.isRoot() || !e.isWaiting(ctx, r.SandboxID)) {
		return r, false, nil
	}
	launched := &restoreWait{done: make(chan struct{})}
	go func() {
		defer close(launched.done)
		lock, err := e.lockLaunch(ctx, r.ID)
		launched.err = err
		_ = lock.Close()
	}()
	err = e.letGoOn(ctx, launched, &restorePlan{from: m, sandboxID: r.SandboxID, compared: func() error { return nil }})
	<-launched.done
	if err = errors.Join(err, launched.err); err != nil {
		return r, false, err
	}
	return e.adoptRestored(ctx, r, m)
}

// adoptRestored takes a container for started whose guest has gone on. Where it has ended meanwhile, that is its end: its files are newer than the state.
func (e *Engine) adoptRestored(ctx context.Context, r record, m manifest) (record, bool, error) {
	made, running, err := e.markRunning(r)
	if err == nil && !e.isAlive(made) {
		err = errors.Join(errGone, running())
	}
	if err != nil {
		return r, false, errors.Join(notReadAsAWhole(m, err), e.Delete(ctx, r.ID))
	}
	if _, err := e.goOn(made, m); err != nil {
		return r, false, err
	}
	return made, true, running()
}

// takeOverState is takeOver for a record of any container.
func (e *Engine) takeOverState(ctx context.Context, r record) (State, bool, error) {
	if r.RestoredFrom == "" {
		return State{}, false, nil
	}
	made, taken, err := e.takeOver(ctx, r)
	if err != nil || !taken {
		return State{}, false, err
	}
	e.watch(made)
	state, err := e.state(made)
	return state, true, err
}

// endRestoring ends a restore that may be waiting for its caller: the runtime's call holds the lock of its container for as long.
func (e *Engine) endRestoring(ctx context.Context, r record) error {
	if r.RestoredFrom == "" || r.Running {
		return nil
	}
	if err := e.letEnd(r); err != nil {
		return err
	}
	if err := e.endUnknown(ctx, r.ID); err != nil {
		return hosterr.New(hosterr.DeadlineExceeded, "container %s: %v", r.ID, err)
	}
	return nil
}
