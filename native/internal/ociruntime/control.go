package ociruntime

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
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
	if err = e.signal(ctx, r, signal, all); err == nil {
		return nil
	}
	// It may have ended between the question and the call.
	if s, stateErr := e.state(r); stateErr == nil && s.Status == "stopped" {
		return nil
	}
	return err
}

func (e *Engine) signal(ctx context.Context, r record, signal string, all bool) error {
	if r.Runtime == Runsc {
		if err := e.signalBySentry(ctx, r, signal, all); err == nil || errors.Is(err, errRefused) || ctx.Err() != nil {
			return err
		}
		// A sentry that does not listen may still be one that the runtime can find.
	}
	args := []string{"kill"}
	if all {
		args = append(args, "--all")
	}
	_, err := e.call(ctx, r.Runtime, r.ID, append(args, runtimeID(r.ID), signal)...)
	return err
}

// Delete kills a container and removes it and, of a root container, all that joined it.
func (e *Engine) Delete(ctx context.Context, id string) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	r, err := e.readRecord(id)
	if hosterr.Is(err, hosterr.NotFound) {
		return e.removeDir(id)
	}
	if err != nil {
		return err
	}
	lock, err := e.lockLaunch(ctx, id)
	if err != nil {
		return err
	}
	defer lock.Close()
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
	return e.removeDir(id)
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
	if e.available(r.Runtime) == nil {
		// With force, a container that the runtime does not know is a success.
		if _, err := e.call(ctx, r.Runtime, r.ID, "delete", "--force", runtimeID(r.ID)); err != nil && !hosterr.Is(err, hosterr.NotFound) {
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

func (e *Engine) removeDir(id string) error {
	if err := e.releaseMounts(id); err != nil {
		return err
	}
	e.forget(id)
	// Whoever noticed the end writes it down here a moment later: a watcher of ours, or the parent of a runc container.
	var err error
	for range removeTriesMax {
		if err = os.RemoveAll(e.containerDir(id)); !errors.Is(err, unix.ENOTEMPTY) {
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

// Pause stops all processes of a sandbox; their memory stays.
func (e *Engine) Pause(ctx context.Context, id string) error { return e.pause(ctx, id, "pause") }

// Resume undoes Pause.
func (e *Engine) Resume(ctx context.Context, id string) error { return e.pause(ctx, id, "resume") }

func (e *Engine) pause(ctx context.Context, id, verb string) error {
	r, err := e.readRecord(id)
	if err != nil {
		return err
	}
	if !r.isRoot() {
		return hosterr.New(hosterr.InvalidArgument, "id: %s joined a sandbox; only the whole of it is paused", id)
	}
	if !e.features[r.Runtime].Pause {
		return hosterr.New(hosterr.Unsupported, "%s cannot pause here: this machine has no freezer", r.Runtime)
	}
	s, err := e.state(r)
	if err != nil {
		return err
	}
	if s.Status == "stopped" {
		return hosterr.New(hosterr.Busy, "container %s has ended", id)
	}
	if (s.Status == "paused") == (verb == "pause") {
		return nil
	}
	if _, err := e.call(ctx, r.Runtime, id, verb, runtimeID(id)); err != nil && !alreadyThere(err) {
		return err
	}
	mark := e.inDir(id, "paused")
	if verb == "pause" {
		return os.WriteFile(mark, nil, 0o600)
	}
	return os.Remove(mark)
}

// alreadyThere is a pause that an earlier, killed call carried out before it could write so down.
func alreadyThere(err error) bool { return hosterr.Is(err, hosterr.Busy) }

// Orphans are containers that a runtime knows and that have no record any more.
func (e *Engine) Orphans() ([]string, error) {
	var found []string
	entries, err := os.ReadDir(e.inst.Run(Runc))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		id, ours := strings.CutSuffix(entry.Name(), runtimeID(""))
		if _, err := e.readRecord(id); ours && hosterr.Is(err, hosterr.NotFound) {
			found = append(found, Runc+"/"+id)
		}
	}
	entries, err = os.ReadDir(e.inst.Run(Runsc))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		match := runscState.FindStringSubmatch(entry.Name())
		if match == nil {
			continue
		}
		if _, err := e.readRecord(match[1]); hosterr.Is(err, hosterr.NotFound) {
			found = append(found, Runsc+"/"+match[1])
		}
	}
	return found, nil
}

var runscState = regexp.MustCompile(`^([a-z0-9-]+)__sandbox:[a-z0-9-]+_\.state$`)

// RemoveOrphan deletes what Orphans named.
func (e *Engine) RemoveOrphan(ctx context.Context, runtime, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err := e.call(ctx, runtime, id, "delete", "--force", runtimeID(id))
	return err
}

// RemoveRunDir takes away what a runtime keeps for all containers; only when none is left.
func (e *Engine) RemoveRunDir() error {
	if err := instance.RemoveMountPoint(e.inst.Run(Runsc, "null-netns")); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(e.inst.Run(Runsc)), os.RemoveAll(e.inst.Run(Runc)), os.RemoveAll(e.inst.Run("exec")))
}
