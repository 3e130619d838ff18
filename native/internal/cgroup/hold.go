package cgroup

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

const (
	// A child between fork and exec has its parent's descriptors: where the parent was killed, a lock is given back some milliseconds later.
	holdMax   = 200 * time.Millisecond
	holdPause = 5 * time.Millisecond
)

// errHeld: another program has the lock of a group.
var errHeld = errors.New("held by another program")

// holds are the locks on an instance's own groups. The instance is named by the path of its data directory, which an engine in another root or
// container may have too, while the groups of a machine are the same in all of them: without a lock each engine would take the other's groups
// for its own leftovers and kill what is in them. The kernel gives a lock back when its holder ends.
type holds struct {
	mu    sync.Mutex
	files map[string]*os.File
}

// own locks the instance's own groups, as far as they are there. Postconditions: without an error no other program works in them.
func (h *Hierarchy) own() error {
	dirs := h.dirs("")
	// In one order, so that of two programs one gets them all.
	slices.Sort(dirs)
	return h.holds.takeAll(dirs)
}

// IsOthers reports whether another program works in the instance's groups.
func (h *Hierarchy) IsOthers() (bool, error) {
	err := h.own()
	if errors.Is(err, errHeld) {
		return true, nil
	}
	return false, err
}

// ownOrRefuse is own with a sentence for the user.
func (h *Hierarchy) ownOrRefuse() error {
	isOthers, err := h.IsOthers()
	if isOthers {
		return hosterr.New(hosterr.Busy,
			"cgroup %s is in use by an engine in another root or container that has the same data directory %s; give one of them another --data-dir",
			h.inst.Cgroup(), h.inst.DataDir)
	}
	return err
}

func (l *holds) takeAll(dirs []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, dir := range dirs {
		if err := l.take(dir); err != nil {
			l.giveBack()
			return err
		}
	}
	return nil
}

func (l *holds) take(dir string) error {
	deadline := time.Now().Add(holdMax)
	for {
		there, err := os.Stat(dir)
		if errors.Is(err, os.ErrNotExist) {
			l.drop(dir)
			return nil
		}
		if err != nil {
			return err
		}
		if held := l.files[dir]; held != nil {
			// A group that was removed and made again meanwhile is another one.
			if info, err := held.Stat(); err == nil && os.SameFile(info, there) {
				return nil
			}
			l.drop(dir)
		}
		err = l.lock(dir)
		if errors.Is(err, errHeld) && time.Now().Before(deadline) {
			time.Sleep(holdPause)
			continue
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
}

func (l *holds) lock(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errHeld
		}
		return err
	}
	l.files[dir] = file
	return nil
}

func (l *holds) drop(dir string) {
	if file := l.files[dir]; file != nil {
		_ = file.Close()
		delete(l.files, dir)
	}
}

func (l *holds) giveBack() {
	for dir := range l.files {
		l.drop(dir)
	}
}
