package ociruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// process is one process of the machine, held by a descriptor: a signal reaches it or no process at all, also when its number is another's by then.
type process struct {
	file       *os.File
	pid        int
	startTicks uint64
}

var errGone = errors.New("the process has ended")

// openProcess opens the very process that began at a time. It is looked at after it is held: before that its number could change hands.
func openProcess(pid int, startTicks uint64) (*process, error) {
	if pid <= 0 {
		return nil, errGone
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	p := &process{file: os.NewFile(uintptr(fd), "pidfd"), pid: pid, startTicks: startTicks}
	if !alive(pid, startTicks) {
		return nil, errors.Join(errGone, p.close())
	}
	return p, nil
}

func (p *process) close() error { return p.file.Close() }

func (p *process) signal(signal unix.Signal) error {
	err := control(p.file, func(fd uintptr) error { return unix.PidfdSendSignal(int(fd), signal, nil, 0) })
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// wait returns once the process has ended. It costs no thread: the descriptor is watched by the runtime's poller.
func (p *process) wait() {
	conn, err := p.file.SyscallConn()
	if err == nil {
		err = conn.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, _ := unix.Poll(fds, 0)
			return n > 0
		})
	}
	// A kernel whose poller does not take the descriptor: ask by hand.
	for err != nil && alive(p.pid, p.startTicks) {
		time.Sleep(50 * time.Millisecond)
	}
}

// endProcess kills a process and waits until it has gone.
func endProcess(ctx context.Context, pid int, startTicks uint64) error {
	p, err := openProcess(pid, startTicks)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		return errors.Join(err, p.close())
	}
	gone := make(chan struct{})
	go func() {
		p.wait()
		_ = p.close()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d does not end: %w", pid, ctx.Err())
	}
}
