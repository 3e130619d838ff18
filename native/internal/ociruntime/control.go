package ociruntime

import (
	"context"
	"errors"
	"regexp"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

var signalPattern = regexp.MustCompile(`^(HUP|INT|QUIT|ABRT|KILL|USR1|USR2|TERM|CONT|STOP|WINCH|ALRM|PIPE|TSTP|RTMIN\+[0-9]{1,2})$`)

// Kill sends a signal to a container's first process, or to all of its processes. One that has ended is a success.
func (e *Engine) Kill(ctx context.Context, id, signal string, all bool) error {
	if !signalPattern.MatchString(signal) {
		return hosterr.New(hosterr.InvalidArgument, "signal: %q is not a signal's name without SIG", signal)
	}
	r, err := e.readRecord(id)
	if err != nil {
		return err
	}
	s, err := e.state(r)
	if err != nil || s.Status == "stopped" {
		return err
	}
	if err := e.signalable(r, signal); err != nil {
		return err
	}
	if err = e.signal(ctx, r, signal, all); err == nil {
		return nil
	}
	// It may have ended between the question and the call.
	if s, stateErr := e.state(r); stateErr == nil && s.Status == "stopped" {
		return nil
	}
	return err
}

// signalable is whether a signal arrives now: what stands still takes none but the one that ends it, and that sets it going.
func (e *Engine) signalable(r record, signal string) error {
	if signal == "KILL" {
		return e.letEnd(r)
	}
	return e.refuseFrozen(r)
}

func (e *Engine) signal(ctx context.Context, r record, signal string, all bool) error {
	if r.Runtime == Runsc {
		if err := e.signalBySentry(ctx, r, signal, all); err == nil || errors.Is(err, errRefused) || ctx.Err() != nil {
			return err
		}
		// A sentry that does not listen may still be one that the runtime can find.
	}
	by, err := e.driverOf(r)
	if err != nil {
		return err
	}
	args := []string{"kill"}
	if all {
		args = append(args, "--all")
	}
	_, err = e.call(ctx, by, r.ID, append(args, runtimeID(r.ID), signal)...)
	return err
}

// Delete kills a container and removes it and, of a root container, all that joined it.
func (e *Engine) Delete(ctx context.Context, id string) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	r, err := e.readRecord(id)
	if hosterr.Is(err, hosterr.NotFound) {
		return e.deleteLost(ctx, id)
	}
	if err != nil {
		return err
	}
	if err := e.endRestoring(ctx, r); err != nil {
		return err
	}
	lock, err := e.lockLaunch(ctx, id)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := e.letEnd(r); err != nil {
		return err
	}
	if r.isRoot() {
		if err := e.deleteRuntime(ctx, r); err != nil {
			return err
		}
		if err := e.deleteJoined(ctx, id); err != nil {
			return err
		}
	} else if err := e.deleteRuntime(ctx, r); err != nil {
		return err
	}
	if err := e.removeDir(id); err != nil || r.Runtime != Runsc || r.RuntimeVersion == e.builds.current {
		return err
	}
	return e.removeUnusedBuilds()
}

func (e *Engine) deleteJoined(ctx context.Context, root string) error {
	all, err := e.records()
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.SandboxID == root && r.ID != root {
			gone := e.deleteRuntime
			if r.Runtime == Runsc {
				gone = e.forgetAtRunsc
			}
			if err := errors.Join(gone(ctx, r), e.removeDir(r.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) deleteRuntime(ctx context.Context, r record) error {
	// A record from before the container ran has no process: only the runtime knows what it made of it.
	if r.Runtime == Runsc && r.isRoot() && r.Running && r.BootID == e.bootID {
		return e.destroySandbox(ctx, r)
	}
	if by, err := e.driverOf(r); err == nil {
		// With force, a container that the runtime does not know is a success.
		if _, err := e.call(ctx, by, r.ID, "delete", "--force", runtimeID(r.ID)); err != nil && !hosterr.Is(err, hosterr.NotFound) {
			return err
		}
	} else if r.Runtime == Runsc {
		if err := e.deleteWithoutProgram(ctx, r); err != nil {
			return err
		}
	}
	if r.Runtime == Runsc && !r.Running {
		if err := e.endUnknown(ctx, r.ID); err != nil {
			return hosterr.New(hosterr.DeadlineExceeded, "container %s: %v", r.ID, err)
		}
	}
	if !r.isRoot() && r.Runtime == Runsc {
		return nil
	}
	// The runtime's answer comes before the last process has let go of its mounts.
	if !e.isAlive(r) {
		return nil
	}
	if err := endProcess(ctx, r.Pid, r.StartTicks); err != nil {
		return hosterr.New(hosterr.DeadlineExceeded, "container %s: %v", r.ID, err)
	}
	return nil
}

// deleteWithoutProgram ends a container whose build is missing: its sentry, where it runs, kills its processes, and what runsc keeps of it goes.
func (e *Engine) deleteWithoutProgram(ctx context.Context, r record) error {
	if root, err := e.readRecord(r.SandboxID); err == nil && !r.isRoot() && e.isAlive(root) {
		if err := e.signalBySentry(ctx, r, "KILL", true); err != nil && !errors.Is(err, errRefused) {
			return err
		}
	}
	return e.forgetAtRunsc(ctx, r)
}

func (e *Engine) removeDir(id string) error {
	if err := e.releaseMounts(id); err != nil {
		return err
	}
	e.forget(id)
	e.forgetRestore(id)
	// A watcher of ours, or the parent of a runc container, may be about to write the end into the directory.
	var err error
	for range removeTriesMax {
		if err = e.containerDir(id).RemoveAll(); !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		time.Sleep(removePause)
	}
	return err
}

// removeTriesMax is more than a directory has writers: each of them writes one file, once. The pause is for the last words of
// a runtime that is on its way out.
const (
	removeTriesMax = 8
	removePause    = 25 * time.Millisecond
)
