package process

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// outlet is one of a process's output streams, from the pipe to the pump.
//
// A pump is started when there is something for it to do: with the first output, or when the process has ended and another one
// still holds the pipe. Until the end of the process the daemon holds the writing end too, so that the end of the output, which comes
// with every process, wakes only the reaper. Most commands are short and say little: a pump for each of their streams would be
// two threads to wake when they start and two when they end.
type outlet struct {
	process *Process
	stream  Stream
	watch   *outputWatch

	mu    sync.Mutex
	state outletState
	// read and held are the pipe's ends; held is -1 when it is closed.
	read, held int
	// file is what the pump reads from; unread bytes in it are output that is still to come.
	file  *os.File
	token uint64
}

type outletState int

const (
	// outletNone is the state of a stream that does not exist, or is not open yet.
	outletNone outletState = iota
	outletWaiting
	outletPumped
	outletEnded
)

// open makes the pipe, and has the watch tell of the first output; the child gets the writing end.
func (o *outlet) open(p *Process, stream Stream, watch *outputWatch) (child int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("pipe2", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.process, o.stream, o.watch, o.read, o.held = p, stream, watch, ends[0], ends[1]
	if err := watch.add(o); err != nil {
		unix.Close(o.read)
		unix.Close(o.held)
		return -1, err
	}
	o.state = outletWaiting
	return o.held, nil
}

// discard closes a stream whose process was never started.
func (o *outlet) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == outletWaiting {
		o.watch.remove(o)
		unix.Close(o.read)
		unix.Close(o.held)
		o.state = outletEnded
	}
}

// pump starts the pump, unless it runs already or nothing can come any more.
func (o *outlet) pump() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == outletWaiting {
		o.startPump()
	}
}

func (o *outlet) startPump() {
	o.state = outletPumped
	// Only now, because a pipe that is never read from needs no mode.
	unix.SetNonblock(o.read, true)
	o.file = os.NewFile(uintptr(o.read), "|0")
	go o.process.pump(o.stream, o.file)
}

// hasUnread says whether the pump has something to read: output, or the end of it. A pipe that has neither is empty and held by
// somebody else.
func (o *outlet) hasUnread() bool {
	o.mu.Lock()
	file := o.file
	o.mu.Unlock()
	return file != nil && isReadable(file)
}

// release lets go of the writing ends of a process that has ended, and ends the streams that no goroutine pumps and nothing can come from
// any more. It returns how many; pumps see to the others.
func (p *Process) release() (ended int32) {
	var polls [2]unix.PollFd
	for i := range p.outputs {
		o := &p.outputs[i]
		o.mu.Lock()
		defer o.mu.Unlock()
		// A negative descriptor is passed over by poll.
		polls[i] = unix.PollFd{Fd: -1, Events: unix.POLLIN}
		if o.state == outletWaiting {
			// Before the writing end is closed, which would wake the watch.
			o.watch.remove(o)
			polls[i].Fd = int32(o.read)
		}
		if o.held >= 0 && o.state != outletNone {
			unix.Close(o.held)
			o.held = -1
		}
	}
	if polls[0].Fd < 0 && polls[1].Fd < 0 {
		return 0
	}
	if _, err := unix.Poll(polls[:], 0); err != nil {
		// Interrupted: the pumps find out.
		polls[0].Revents, polls[1].Revents = 0, 0
	}
	for i := range p.outputs {
		o := &p.outputs[i]
		switch {
		case polls[i].Fd < 0:
		case polls[i].Revents == unix.POLLHUP:
			unix.Close(o.read)
			o.state = outletEnded
			ended++
		default:
			o.startPump()
		}
	}
	return ended
}

// outputWatch tells streams of their first output. One goroutine does it for all processes.
type outputWatch struct {
	once sync.Once
	err  error
	fd   int

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*outlet
}

// start makes the kernel's part of the watch. It is an epoll instance of its own, which the runtime's own one waits for: one
// descriptor there instead of two for every process.
func (w *outputWatch) start() {
	w.waiting = map[uint64]*outlet{}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		w.err = os.NewSyscallError("epoll_create1", err)
		return
	}
	// Nothing is ever read from it; this is what makes the runtime wait for it.
	if err := unix.SetNonblock(fd, true); err != nil {
		w.err = os.NewSyscallError("fcntl", err)
		return
	}
	w.fd = fd
	go w.run(os.NewFile(uintptr(fd), "outputs"))
}

func (w *outputWatch) add(o *outlet) error {
	w.once.Do(w.start)
	if w.err != nil {
		return w.err
	}
	w.mu.Lock()
	w.last++
	o.token = w.last
	w.waiting[o.token] = o
	w.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(o.token), Pad: int32(o.token >> 32)}
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, o.read, &event); err != nil {
		w.take(o.token)
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// remove takes the stream's descriptor out of the poller.
func (w *outputWatch) remove(o *outlet) {
	if w.take(o.token) != nil {
		unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, o.read, nil)
	}
}

func (w *outputWatch) take(token uint64) *outlet {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.waiting[token]
	delete(w.waiting, token)
	return o
}

func (w *outputWatch) run(file *os.File) {
	connection, err := file.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 16)
	for {
		count := 0
		_ = connection.Read(func(fd uintptr) bool {
			var err error
			count, err = unix.EpollWait(int(fd), events, 0)
			return count > 0 || err == unix.EINTR
		})
		for _, event := range events[:max(count, 0)] {
			if o := w.take(uint64(uint32(event.Fd)) | uint64(uint32(event.Pad))<<32); o != nil {
				o.pump()
			}
		}
	}
}
