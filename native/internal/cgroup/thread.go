package cgroup

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// waitMax is how long a thread stays in a new group; the first process of a pod starts within a second of its group.
const waitMax = 10 * time.Second

// threads are those that went into a new group ahead of the process that will be started there. The first move between groups in a while lasts
// a grace period of the kernel, several milliseconds, and everything else that a pod needs is made meanwhile.
type threads struct {
	mu      sync.Mutex
	waiting map[string]*thread
}

// thread is in one group until it has started a command there, or is not wanted.
type thread struct {
	orders chan order
	stop   chan struct{}
	left   chan struct{}
}

// order has room for its result, so that the thread does not wait for the caller to take it.
type order struct {
	cmd    *exec.Cmd
	result chan error
}

// Expect prepares for the first start of a pod's process in a group that has only processes of ours so far, however late it may come: nothing
// that a guest does can happen to the thread that waits there, and a move between groups holds up every fork of the machine.
func (h *Hierarchy) Expect(id string) {
	if len(h.v1) > 0 && h.Exists(id) {
		h.send(id, 0)
	}
}

// send makes a thread enter a group and wait there for a command to start; 0 is no limit.
func (h *Hierarchy) send(id string, limit time.Duration) {
	h.threads.mu.Lock()
	defer h.threads.mu.Unlock()
	if h.threads.waiting[id] != nil {
		return
	}
	t := newThread()
	h.threads.waiting[id] = t
	go h.occupy(id, t, limit)
}

func newThread() *thread {
	return &thread{orders: make(chan order), stop: make(chan struct{}), left: make(chan struct{})}
}

func (h *Hierarchy) occupy(id string, t *thread, limit time.Duration) {
	// In v1 a cgroup belongs to the thread, and a child inherits its parent thread's. A thread that cannot go back ends with this goroutine.
	runtime.LockOSThread()
	err := h.enter(h.groupOf(id))
	var tooLong <-chan time.Time
	if limit > 0 {
		tooLong = time.After(limit)
	}
	for isWaiting := true; isWaiting; {
		select {
		case o := <-t.orders:
			if err == nil {
				err = o.cmd.Start()
			}
			o.result <- err
			isWaiting = false
		case <-t.stop:
			isWaiting = false
		case <-tooLong:
			// The call that took it has an order for it.
			isWaiting = h.take(id, t) == nil
		}
	}
	if h.enter(func(mount string) string { return h.home[mount] }) == nil {
		runtime.UnlockOSThread()
	}
	close(t.left)
}

// take claims the thread that waits in a group: that one, or whichever there is.
func (h *Hierarchy) take(id string, only *thread) *thread {
	h.threads.mu.Lock()
	defer h.threads.mu.Unlock()
	t := h.threads.waiting[id]
	if t == nil || (only != nil && t != only) {
		return nil
	}
	delete(h.threads.waiting, id)
	return t
}

// recall brings the thread that waits in a group home.
func (h *Hierarchy) recall(id string) {
	if t := h.take(id, nil); t != nil {
		close(t.stop)
		<-t.left
	}
}

func (h *Hierarchy) groupOf(id string) func(mount string) string {
	return func(mount string) string { return filepath.Join(mount, h.inst.Cgroup(), id) }
}
