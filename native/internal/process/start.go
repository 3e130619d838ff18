package process

import (
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
		ID: newID(), Number: number, Spec: spec, StartedAt: time.Now(), Log: NewLog(spec.OutputBytes),
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
	p.arrived()
	return p, nil
}

// spawn prepares everything, forks, and starts the pumps.
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
	stdio, err := r.openStdio(&p.Spec, child.credential)
	if err != nil {
		return err
	}
	child.files = stdio.child()
	// The leader; the pumps are counted where they start.
	p.awaited.Add(1)
	p.Pid, err = r.reaper.Start(child.start, p.leaderExited)
	stdio.closeChild(r.null)
	if err != nil {
		stdio.closeOurs()
		return &os.PathError{Op: "fork/exec", Path: child.path, Err: err}
	}
	p.take(stdio)
	return nil
}

// take hands our ends of the pipes, or the terminal, to the process's pumps and input.
func (p *Process) take(stdio *stdio) {
	if stdio.terminal != nil {
		p.terminal = stdio.terminal
		p.input = newInput(stdio.terminal, true)
		p.awaited.Add(1)
		p.outputs[0] = stdio.terminal
		go p.pump(Stdout, stdio.terminal)
		return
	}
	if stdio.input != nil {
		p.input = newInput(stdio.input, false)
	}
	p.awaited.Add(2)
	p.outputs = [2]*os.File{stdio.output, stdio.errors}
	go p.pump(Stdout, stdio.output)
	go p.pump(Stderr, stdio.errors)
}

// stdio holds both ends of a process's standard streams.
type stdio struct {
	in, out, err          *os.File
	input, output, errors *os.File
	terminal              *os.File
}

func (s *stdio) child() [3]int { return [3]int{int(s.in.Fd()), int(s.out.Fd()), int(s.err.Fd())} }

func (r *Registry) openStdio(spec *Spec, credential *syscall.Credential) (*stdio, error) {
	s := &stdio{in: r.null}
	if spec.Terminal != nil {
		master, slave, err := openTerminal(*spec.Terminal)
		if err != nil {
			return nil, err
		}
		if credential != nil {
			slave.Chown(int(credential.Uid), -1)
		}
		s.terminal, s.in, s.out, s.err = master, slave, slave, slave
		return s, nil
	}
	var err error
	if s.output, s.out, err = pipe(false); err == nil {
		s.errors, s.err, err = pipe(false)
	}
	if err == nil && spec.Stdin {
		s.in, s.input, err = pipe(true)
	}
	if err != nil {
		s.closeChild(r.null)
		s.closeOurs()
		return nil, err
	}
	return s, nil
}

func (s *stdio) closeChild(null *os.File) {
	for _, file := range []*os.File{s.in, s.out, s.err} {
		if file != nil && file != null {
			file.Close()
		}
	}
}

func (s *stdio) closeOurs() {
	for _, file := range []*os.File{s.input, s.output, s.errors, s.terminal} {
		if file != nil {
			file.Close()
		}
	}
}

// pipe makes a pipe whose one end, ours, can be waited for with a deadline; the child's end blocks as programs expect.
func pipe(oursWrites bool) (read, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	ours := 0
	if oursWrites {
		ours = 1
	}
	if err := unix.SetNonblock(fds[ours], true); err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}
