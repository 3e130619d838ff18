package process

import (
	"cmp"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Start runs a process. It is a StartError that tells why it could not.
func (r *Registry) Start(spec Spec) (*Process, error) {
	number, err := r.reserve(spec.Entrypoint)
	if err != nil {
		return nil, err
	}
	p := &Process{
		ID: cmp.Or(spec.ID, NewID()), Number: number, Spec: spec, StartedAt: time.Now(), Log: NewLog(spec.OutputBytes),
		done: make(chan struct{}),
	}
	p.completed = func() { r.ended(p) }
	if spec.Entrypoint {
		p.ID = Entrypoint
	}
	// Start itself holds the end back until the process can be found.
	p.awaited.Store(1)
	if err := r.spawn(p); err != nil {
		r.release(spec.Entrypoint)
		return nil, startError(err)
	}
	r.add(p)
	if spec.Timeout > 0 {
		p.timeout = time.AfterFunc(spec.Timeout, p.expire)
	}
	p.registered.Store(true)
	p.arrived(1)
	return p, nil
}

// spawn prepares everything and starts the program.
func (r *Registry) spawn(p *Process) error {
	if err := p.Spec.check(); err != nil {
		return err
	}
	who, err := lookIdentity(p.Spec.User)
	if err != nil {
		return err
	}
	child := &program{argv: p.Spec.Command, dir: p.Spec.Dir, terminal: p.Spec.Terminal != nil}
	var own map[string]string
	if who != nil {
		own, child.credential = who.variables, who.credential
	}
	child.environment = p.Spec.environment(r.environment, p.ID, own)
	if child.path, err = lookProgram(p.Spec.Command[0], child.environment); err != nil {
		return err
	}
	if len(p.Spec.Limits) > 0 {
		child.argv = withLimits(p.Spec.Limits, child.path, child.argv)
		child.path = "/proc/self/exe"
	}
	streams, err := r.openStreams(p, child.credential)
	if err != nil {
		return err
	}
	child.files = streams.child
	// The leader; each pump that is waited for too is counted where it is opened.
	p.awaited.Add(1)
	p.Pid, err = r.reaper.Start(child.start, p.leaderExited)
	streams.closeChild()
	if err != nil {
		streams.closeOurs(p)
		return explain(child.path, p.Spec.Dir, &os.PathError{Op: "fork/exec", Path: child.path, Err: err})
	}
	p.take(streams)
	return nil
}

// take hands our ends of standard input and of the terminal to the process's input and pump.
func (p *Process) take(streams *streams) {
	if streams.terminal != nil {
		p.terminal = streams.terminal
		p.input = newInput(streams.terminal, true)
		go p.pump(Stdout, streams.terminal)
	} else if streams.input != nil {
		p.input = newInput(streams.input, false)
	}
}

// streams are a process's standard streams while it is started.
type streams struct {
	// child are the descriptors that become the child's 0, 1 and 2.
	child [3]int
	// lent is what only the child needs once it is there: the terminal, or the reading end of its input.
	lent *os.File
	// input and terminal are ours; the outputs are the process's.
	input, terminal *os.File
}

func (r *Registry) openStreams(p *Process, credential *syscall.Credential) (*streams, error) {
	if p.Spec.Terminal != nil {
		return openTerminalStreams(p, credential)
	}
	s := &streams{child: [3]int{int(r.null.Fd())}}
	var err error
	for i, stream := range []Stream{Stdout, Stderr} {
		if err == nil {
			s.child[i+1], err = p.outputs[i].open(p, stream, &r.outputs)
		}
	}
	if err == nil && p.Spec.Stdin {
		s.lent, s.input, err = inputPipe()
	}
	if err != nil {
		s.closeOurs(p)
		return nil, err
	}
	if s.lent != nil {
		s.child[0] = int(s.lent.Fd())
	}
	p.awaited.Add(int32(len(p.outputs)))
	return s, nil
}

func openTerminalStreams(p *Process, credential *syscall.Credential) (*streams, error) {
	master, slave, err := openTerminal(*p.Spec.Terminal)
	if err != nil {
		return nil, err
	}
	if credential != nil {
		slave.Chown(int(credential.Uid), -1)
	}
	fd := int(slave.Fd())
	p.outputs[0].file = master
	p.awaited.Add(1)
	return &streams{child: [3]int{fd, fd, fd}, lent: slave, terminal: master}, nil
}

func (s *streams) closeChild() {
	if s.lent != nil {
		s.lent.Close()
	}
}

func (s *streams) closeOurs(p *Process) {
	for i := range p.outputs {
		p.outputs[i].discard()
	}
	for _, file := range []*os.File{s.input, s.terminal} {
		if file != nil {
			file.Close()
		}
	}
}

// inputPipe makes a pipe whose writing end can be given up on; the reading end blocks, as programs expect.
func inputPipe() (read, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	if err := unix.SetNonblock(fds[1], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}
