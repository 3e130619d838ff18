// Package process starts, follows and ends processes inside a sandbox.
package process

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reaper collects every child of this process, its own and those the kernel handed to it, so that none stays a zombie.
//
// Invariant: no other code of this program waits for children. One goroutine blocks in wait4(-1); a child's status goes to
// its starter, an orphan's status is dropped.
type Reaper struct {
	mu       sync.Mutex
	waiting  map[int]func(syscall.WaitStatus)
	early    map[int]syscall.WaitStatus
	starting int
	born     chan struct{}
	running  sync.Once
	adopts   atomic.Bool
}

// NewReaper makes a reaper that collects from the first Start on. There must be only one in a process.
func NewReaper() *Reaper {
	return &Reaper{
		waiting: map[int]func(syscall.WaitStatus){},
		early:   map[int]syscall.WaitStatus{},
		// One pending wake-up is enough: the loop drains all children after it.
		born: make(chan struct{}, 1),
	}
}

// AdoptOrphans collects from now on, also when this process has no children of its own: the kernel hands PID 1 the orphans
// of processes that were put into the container from outside.
func (r *Reaper) AdoptOrphans() {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	go func() {
		for range died {
			r.wake()
		}
	}()
	r.adopts.Store(true)
	r.running.Do(func() { go r.run() })
	// It may be waiting already, deaf to the signal.
	r.wake()
}

// Start runs fork and calls exited, once and from another goroutine, with the status of the child it returned.
func (r *Reaper) Start(fork func() (int, error), exited func(syscall.WaitStatus)) (int, error) {
	r.running.Do(func() { go r.run() })
	r.mu.Lock()
	r.starting++
	r.mu.Unlock()

	pid, err := fork()
	r.wake()

	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting--
	if err == nil {
		if status, ok := r.early[pid]; ok {
			delete(r.early, pid)
			go exited(status)
		} else {
			r.waiting[pid] = exited
		}
	}
	if r.starting == 0 {
		clear(r.early)
	}
	return pid, err
}

func (r *Reaper) wake() {
	select {
	case r.born <- struct{}{}:
	default:
	}
}

func (r *Reaper) run() {
	handler := muteChildSignal()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch err {
		case nil:
			r.deliver(pid, status)
			// The goroutine that waited for the child goes on in this thread, which is awake, and not in another one.
			runtime.Gosched()
		case syscall.EINTR:
		default:
			r.awaitChild(handler)
		}
	}
}

// awaitChild waits while there are no children at all: only Start, or an orphan's death, is worth looking again.
func (r *Reaper) awaitChild(handler *signalAction) {
	if r.adopts.Load() {
		handler.set()
		defer muteChildSignal()
		// An orphan may have come and died before its signal counted.
		var status syscall.WaitStatus
		if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); err == nil {
			if pid > 0 {
				r.deliver(pid, status)
			}
			return
		}
	}
	<-r.born
}

// signalAction is what the kernel keeps of a signal's handler; to us it is only bytes.
type signalAction [4]uint64

func (a *signalAction) set() {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(a)), 0, 8, 0, 0)
}

// muteChildSignal gives SIGCHLD its default action, which is none, and returns the runtime's own. The runtime handles every signal,
// wanted or not: the end of each child would interrupt a thread for nothing, while the reaper waits for it anyway.
func muteChildSignal() *signalAction {
	handler, none := new(signalAction), new(signalAction)
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(none)), uintptr(unsafe.Pointer(handler)), 8, 0, 0)
	return handler
}

func (r *Reaper) deliver(pid int, status syscall.WaitStatus) {
	r.mu.Lock()
	exited, ok := r.waiting[pid]
	delete(r.waiting, pid)
	if !ok && r.starting > 0 {
		// The child may have ended before its starter learned its number.
		r.early[pid] = status
	}
	r.mu.Unlock()
	if ok {
		exited(status)
	}
}
