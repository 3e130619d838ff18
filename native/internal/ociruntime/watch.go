package ociruntime

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// watcher is closed once the container's exit is on disk.
type watcher struct{ done chan struct{} }

// A wait longer than this is asked for again by the caller; it bounds what a lost client costs.
const waitMax = 10 * time.Minute

func (e *Engine) watchAll() error {
	records, err := e.records()
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Running {
			e.watch(r)
		}
	}
	return nil
}

// logBytesMax bounds a sentry's log: a guest can make the sentry complain, and complaints must not fill the disk.
const logBytesMax = 4 << 20

// trimLogs empties logs over their bound. The sentry appends, so that its last words still end up there.
func (e *Engine) trimLogs() {
	for range time.Tick(10 * time.Second) {
		containers, err := e.tree.At("containers").ReadDir()
		if err != nil {
			continue
		}
		for _, container := range containers {
			trimLogsIn(e.containerDir(container.Name()))
		}
	}
}

// trimLogsIn leaves out what is removed meanwhile.
func trimLogsIn(dir confine.Entry) {
	files, err := dir.ReadDir()
	if err != nil {
		return
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".log") {
			continue
		}
		log, err := dir.In(file.Name()).Open(unix.O_WRONLY, 0)
		if err != nil {
			continue
		}
		if info, err := log.Stat(); err == nil && info.Size() > logBytesMax {
			_ = log.Truncate(0)
		}
		_ = log.Close()
	}
}

func (e *Engine) watch(r record) *watcher {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w, found := e.watchers[r.ID]; found {
		return w
	}
	w := &watcher{done: make(chan struct{})}
	e.watchers[r.ID] = w
	go func() {
		defer close(w.done)
		if _, err := e.readExit(r.ID); err == nil {
			return
		}
		e.awaitExit(r)
	}()
	return w
}

// forget ends the watch of a container that has gone. What its watcher is about to write is waited for, so that it does not bring back the
// directory of a container that was removed.
func (e *Engine) forget(id string) {
	e.mu.Lock()
	w, found := e.watchers[id]
	delete(e.watchers, id)
	e.mu.Unlock()
	if !found {
		return
	}
	select {
	case <-w.done:
	case <-time.After(forgetMax):
	}
}

// forgetMax is far longer than a watcher needs to write one file; it bounds what a watcher that hangs can cost.
const forgetMax = 2 * time.Second

// awaitExit asks the sentry, which knows the moment the first process ends; if it cannot answer, its own end is waited for.
func (e *Engine) awaitExit(r record) {
	e.awaitStart(r)
	if r.Runtime == Runsc && e.isAlive(r) {
		if status, err := waitBySentry(e.controlSocket(r.SandboxID), runtimeID(r.ID)); err == nil {
			_, _ = e.writeExit(r.ID, exitOf(status, time.Now()))
			return
		}
	}
	if p, err := openProcess(r.Pid, r.StartTicks); err == nil {
		p.wait()
		p.close()
	}
	_, _ = e.settle(r)
}

// settle finds out how a container whose process is gone ended, from what was left on disk.
func (e *Engine) settle(r record) (*Exit, error) {
	if x, err := e.readExit(r.ID); err == nil {
		return x, nil
	}
	x := Exit{FinishedAt: time.Now().UTC()}
	if r.Runtime == Runsc && r.isRoot() {
		if status, at, err := statusInLog(e.inDir(r.ID, "runsc.boot.log")); err == nil {
			x = exitOf(status, at)
		}
	}
	if r.Runtime == Runc {
		// The parent writes the record right after the process ended; it may need a moment.
		for range 100 {
			if found, err := e.readExit(r.ID); err == nil {
				return found, nil
			}
			if !e.parentAlive(r.ID) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return e.writeExit(r.ID, x)
}

var exitLine = regexp.MustCompile(`Exiting with status: (\d+)`)

// statusInLog finds the sentry's last words. They are the sentry's, not the guest's: a guest cannot write to this log.
func statusInLog(log confine.Entry) (uint32, time.Time, error) {
	f, err := log.Open(unix.O_RDONLY, 0)
	if err != nil {
		return 0, time.Time{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, time.Time{}, err
	}
	const tailBytes = 4096
	if _, err := f.Seek(max(0, info.Size()-tailBytes), io.SeekStart); err != nil {
		return 0, time.Time{}, err
	}
	tail, err := io.ReadAll(f)
	if err != nil {
		return 0, time.Time{}, err
	}
	matches := exitLine.FindAllSubmatch(tail, -1)
	if len(matches) == 0 || !bytes.Contains(tail, []byte("application exiting with")) {
		return 0, time.Time{}, errNoRecord
	}
	status, err := strconv.ParseUint(string(matches[len(matches)-1][1]), 10, 32)
	return uint32(status), info.ModTime(), err
}

// Wait returns a container's exit, or nil when the time is up first.
func (e *Engine) Wait(ctx context.Context, id string, wait time.Duration) (*Exit, error) {
	r, err := e.readRecord(id)
	if err != nil {
		return nil, err
	}
	if wait < 0 || wait > waitMax {
		return nil, hosterr.New(hosterr.InvalidArgument, "waitMs: %s is not within 0 to %s", wait, waitMax)
	}
	if x, err := e.readExit(id); err == nil {
		return x, nil
	}
	if !r.Running {
		return nil, hosterr.New(hosterr.Busy, "container %s has not started", id)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-e.watch(r).done:
		x, err := e.readExit(id)
		if errors.Is(err, errNoRecord) {
			return nil, hosterr.New(hosterr.NotFound, "container %s was deleted", id)
		}
		return x, err
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *Engine) parentAlive(id string) bool {
	var parent parentRecord
	return e.shelf.Read(e.inDir(id, parentName), &parent) == nil && alive(parent.Pid, parent.StartTicks)
}
