package process

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outputQuiet is how long a process's pipes must be silent after its end before its output counts as complete, when
// something it left in the background still holds them. Long enough for a pipeline to flush, short enough not to annoy.
const outputQuiet = 250 * time.Millisecond

// outputGraceMax bounds the wait for a background process that keeps writing; the reference daemon's bound.
const outputGraceMax = 5 * time.Second

// Exit says how a process ended.
type Exit struct {
	// Code is the program's own, or 128 plus the signal's number.
	Code int
	// Signal is zero unless a signal ended it.
	Signal     syscall.Signal
	TimedOut   bool
	FinishedAt time.Time
	// OutputOffset is where the log stood.
	OutputOffset uint64
}

// Process is one started process; it stays readable after its end.
type Process struct {
	ID        string
	Number    int32
	Pid       int
	Spec      Spec
	StartedAt time.Time
	Log       *Log

	input    *input
	terminal *os.File
	captured [2]capture
	// outputs are standard output and standard error, or the terminal alone.
	outputs [2]outlet

	status  syscall.WaitStatus
	endedAt time.Time
	reaped  atomic.Bool
	// awaited counts what the end waits for: the leader and the pumps. The last of them completes it, so that no
	// goroutine has to be woken for it.
	awaited    atomic.Int32
	lastOutput atomic.Int64
	appending  atomic.Int32
	timedOut   atomic.Bool
	timeout    *time.Timer
	registered atomic.Bool
	completing sync.Once
	completed  func()
	done       chan struct{}
	exit       Exit
}

// Done is closed when the process has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns how it ended; ok is false while it runs.
func (p *Process) Exit() (exit Exit, ok bool) {
	select {
	case <-p.done:
		return p.exit, true
	default:
		return Exit{}, false
	}
}

// Wait returns how it ended, or the context's cause.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		return Exit{}, context.Cause(ctx)
	}
}

// Captured returns the head of a stream and how many bytes did not fit.
func (p *Process) Captured(stream Stream) (head []byte, dropped uint64) {
	return p.captured[stream-1].take()
}

// ErrNoTerminal says that a process has no terminal, or has it no more.
var ErrNoTerminal = errors.New("process is completed or has no active PTY")

// Resize sets the terminal's window size.
func (p *Process) Resize(size Size) error {
	if p.terminal == nil || p.reaped.Load() {
		return ErrNoTerminal
	}
	connection, err := p.terminal.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = connection.Control(func(fd uintptr) { failure = setSize(int(fd), size) })
	return errors.Join(err, failure)
}

// Scope says who gets a signal.
type Scope int

// The scopes of Signal.
const (
	ScopeTree Scope = iota
	ScopeGroup
	ScopeProcess
)

// Signal sends a signal and returns how many processes took it. SIGKILL to the tree is repeated until nothing is left.
func (p *Process) Signal(signal syscall.Signal, scope Scope) (int, error) {
	if scope == ScopeTree {
		if signal == syscall.SIGKILL {
			return p.KillTree(), nil
		}
		return signalTree(p.tree(), signal), nil
	}
	if p.reaped.Load() {
		return 0, nil
	}
	err := syscall.ESRCH
	if scope == ScopeGroup {
		err, _ = syscall.Kill(-p.Pid, signal).(syscall.Errno)
	}
	if err != 0 {
		err, _ = syscall.Kill(p.Pid, signal).(syscall.Errno)
	}
	switch err {
	case 0:
		return 1, nil
	case syscall.ESRCH:
		return 0, nil
	}
	return 0, err
}

// KillTree kills the process and everything that descends from it, and returns how many it found.
func (p *Process) KillTree() int {
	if !p.reaped.Load() {
		syscall.Kill(-p.Pid, syscall.SIGKILL)
	}
	killed := map[int]bool{}
	for range killRoundsMax {
		pids := p.tree()
		if len(pids) == 0 {
			break
		}
		signalTree(pids, syscall.SIGKILL)
		for _, pid := range pids {
			killed[pid] = true
		}
		time.Sleep(killRoundPause)
	}
	return max(len(killed), 1)
}

func (p *Process) tree() []int { return tree(p.Pid, !p.reaped.Load(), p.ID) }

// leaderExited is called by the reaper.
func (p *Process) leaderExited(status syscall.WaitStatus) {
	p.status, p.endedAt = status, time.Now()
	p.reaped.Store(true)
	if !p.arrived(1 + p.release()) {
		time.AfterFunc(outputQuiet, p.checkQuiet)
	}
}

// arrived counts some of those the end waits for, and completes the process if they were the last.
func (p *Process) arrived(count int32) bool {
	if p.awaited.Add(-count) > 0 {
		return false
	}
	p.completing.Do(p.complete)
	return true
}

// pump moves one stream's output until its end, which may come long after the process's.
func (p *Process) pump(stream Stream, from *os.File) {
	defer p.arrived(1)
	defer from.Close()
	connection, err := from.SyscallConn()
	if err != nil {
		return
	}
	for {
		buffer, n := p.read(connection)
		if n <= 0 {
			return
		}
		p.emit(stream, (*buffer)[:n])
		buffers.Put(buffer)
		p.lastOutput.Store(time.Now().UnixNano())
		p.appending.Add(-1)
	}
}

// read waits for output and returns it in a borrowed buffer, or nothing at its end. What it returns is counted as being appended
// from before it left the pipe: a reader finds it in the one place or in the other. A process that writes nothing holds no
// buffer while it is waited for.
func (p *Process) read(connection syscall.RawConn) (buffer *[]byte, n int) {
	_ = connection.Read(func(fd uintptr) bool {
		buffer = buffers.Get().(*[]byte)
		p.appending.Add(1)
		var err error
		if n, err = readSome(int(fd), *buffer); n > 0 {
			return true
		}
		p.appending.Add(-1)
		buffers.Put(buffer)
		return err != unix.EAGAIN
	})
	return buffer, n
}

func readSome(fd int, buffer []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buffer)
		if err != unix.EINTR {
			return n, err
		}
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, chunkBytesMax); return &b }}

func (p *Process) emit(stream Stream, output []byte) {
	if p.Spec.CaptureBytes > 0 {
		p.captured[stream-1].add(output, p.Spec.CaptureBytes)
	}
	if p.Spec.Tee != nil {
		p.Spec.Tee(stream, output)
	}
	p.Log.Append(stream, output)
}

// complete publishes the exit.
func (p *Process) complete() {
	if p.timeout != nil {
		p.timeout.Stop()
	}
	p.exit = Exit{Code: p.status.ExitStatus(), TimedOut: p.timedOut.Load(), FinishedAt: time.Now()}
	if p.status.Signaled() {
		p.exit.Signal = p.status.Signal()
		p.exit.Code = 128 + int(p.status.Signal())
	}
	_, p.exit.OutputOffset = p.Log.Bounds()
	p.input.discard()
	// A caller that learns of the end finds its place free and the oldest of the ended ones forgotten.
	p.completed()
	close(p.done)
	p.Log.Finish()
}

// checkQuiet completes a process that has ended while something it left in the background still holds its pipes, once they
// have been silent for a while.
func (p *Process) checkQuiet() {
	last := time.Unix(0, p.lastOutput.Load())
	if last.Before(p.endedAt) {
		last = p.endedAt
	}
	wait := outputQuiet - time.Since(last)
	if p.appending.Load() > 0 || p.hasUnread() || !p.registered.Load() {
		// A slow reader holds the output back, or a busy machine has not let the pump read it: it is neither silent nor late.
		// Nor can a process end that is not in the registry yet.
		wait = outputQuiet
	} else if wait <= 0 || time.Since(p.endedAt) > outputGraceMax {
		p.completing.Do(p.complete)
		return
	}
	time.AfterFunc(wait, p.checkQuiet)
}

// hasUnread says whether a pump has something to read.
func (p *Process) hasUnread() bool { return p.outputs[0].hasUnread() || p.outputs[1].hasUnread() }

// isReadable is false for a file that is closed: its pump is done with it.
func isReadable(file *os.File) bool {
	connection, err := file.SyscallConn()
	if err != nil {
		return false
	}
	readable := false
	_ = connection.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		count, err := unix.Poll(poll, 0)
		readable = err == nil && count > 0
	})
	return readable
}

// expire ends a process that ran out of time.
func (p *Process) expire() {
	p.timedOut.Store(true)
	p.KillTree()
}
