package ociruntime

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// TerminalSize is a terminal's size in characters.
type TerminalSize struct {
	Columns uint16 `json:"columns"`
	Rows    uint16 `json:"rows"`
}

// ExecRequest is a process to start in a running container.
type ExecRequest struct {
	ID       string        `json:"id"`
	Process  Process       `json:"process"`
	Terminal *TerminalSize `json:"terminal,omitempty"`
	Stdin    bool          `json:"stdin"`
}

// Exec is a running exec. Stdin, Stdout and Stderr are our ends; with a terminal all of them are its master.
type Exec struct {
	Stdin          *os.File
	Stdout, Stderr *os.File

	engine  *Engine
	record  record
	cmd     *exec.Cmd
	work    confine.Entry
	ended   chan struct{}
	code    int
	err     error
	started bool
	once    sync.Once
}

// startPollEvery is how often the process's number is looked for; the runtimes announce it only by a file. A start takes about 20 ms.
const startPollEvery = time.Millisecond

// StartExec starts a process and returns once it runs.
func (e *Engine) StartExec(ctx context.Context, r ExecRequest) (*Exec, error) {
	rec, err := e.readRecord(r.ID)
	if err != nil {
		return nil, err
	}
	if err := r.Process.Check(rec.Runtime); err != nil {
		return nil, err
	}
	s, err := e.state(rec)
	if err != nil {
		return nil, err
	}
	if s.Status != "running" {
		return nil, hosterr.New(hosterr.Busy, "container %s is %s", r.ID, s.Status)
	}
	if err := errors.Join(e.checkGoing(rec.SandboxID), e.refuseFrozen(rec)); err != nil {
		return nil, err
	}
	by, err := e.driverOf(rec)
	if err != nil {
		return nil, err
	}
	work, err := e.run.At("exec").MakeTempDir("exec-", 0o700)
	if err != nil {
		return nil, err
	}
	x := &Exec{engine: e, record: rec, work: work, ended: make(chan struct{})}
	if err := x.start(r, by); err != nil {
		return nil, errors.Join(err, work.RemoveAll())
	}
	if err := x.awaitStart(ctx); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

func (x *Exec) start(r ExecRequest, by driver) error {
	process := buildProcess(r.Process)
	if r.Terminal != nil {
		process.Terminal = true
		process.ConsoleSize = &ociConsoleSize{Height: uint(r.Terminal.Rows), Width: uint(r.Terminal.Columns)}
	}
	text, err := json.Marshal(process)
	if err != nil {
		return err
	}
	if err := x.work.In("process.json").WriteFile(text, 0o600); err != nil {
		return err
	}
	args := x.engine.globalArgs(x.record.Runtime, x.work.In("log"))
	args = append(args, "exec", "--process", x.work.In("process.json").Path())
	if x.record.Runtime == Runsc {
		args = append(args, "--internal-pid-file", x.pidFile().Path())
	} else {
		args = append(args, "--pid-file", x.pidFile().Path())
	}
	x.cmd = exec.Command(by.program, append(args, runtimeID(x.record.ID))...)
	x.cmd.Env = runtimeEnv()
	theirs, err := x.openStreams(r)
	if err != nil {
		return err
	}
	err = startTracked(x.cmd, func() error { return x.engine.cgroups.Start(x.cmd, "") })
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		x.closeStreams()
		return err
	}
	go x.wait()
	return nil
}

func (x *Exec) openStreams(r ExecRequest) (theirs []*os.File, err error) {
	if r.Terminal != nil {
		return x.openTerminal(*r.Terminal)
	}
	pipe := func() (*os.File, *os.File) {
		if err != nil {
			return nil, nil
		}
		var read, write *os.File
		read, write, err = os.Pipe()
		return read, write
	}
	var in, out, errOut *os.File
	if r.Stdin {
		in, x.Stdin = pipe()
	} else {
		in, err = os.Open(os.DevNull)
	}
	x.Stdout, out = pipe()
	x.Stderr, errOut = pipe()
	if err != nil {
		return nil, err
	}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = in, out, errOut
	return []*os.File{in, out, errOut}, nil
}

func (x *Exec) openTerminal(size TerminalSize) ([]*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	slave, err := openPeer(master)
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	x.Stdin, x.Stdout = master, master
	if err := x.Resize(size); err != nil {
		return nil, errors.Join(err, master.Close(), slave.Close())
	}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	// The runtime is the terminal's foreground process: the kernel tells it of a new size, and it passes that on.
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	return []*os.File{slave}, nil
}

// awaitStart returns once the process runs, or why it does not.
func (x *Exec) awaitStart(ctx context.Context) error {
	ticker := time.NewTicker(startPollEvery)
	defer ticker.Stop()
	for {
		if x.hasPid() {
			x.started = true
			return nil
		}
		select {
		case <-x.ended:
			if x.hasPid() {
				x.started = true
				return nil
			}
			return x.startFailure(ctx)
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (x *Exec) startFailure(ctx context.Context) error {
	message := lastMessage(x.work.In("log"), nil)
	if s, err := x.engine.state(x.record); err == nil && s.Status == "stopped" {
		return hosterr.New(hosterr.Busy, "container %s has ended", x.record.ID)
	}
	err := x.engine.failure(ctx, x.record.Runtime, x.record.ID, "exec", x.err, message)
	if hosterr.Is(err, hosterr.RuntimeFailed) {
		// The container runs and the request is well formed: what is left is the program, its directory or its user.
		return hosterr.New(hosterr.StartFailed, "%v", err)
	}
	return err
}

func (x *Exec) wait() {
	x.err = waitTracked(x.cmd)
	x.code = x.cmd.ProcessState.ExitCode()
	if status, ok := x.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		x.code = 128 + int(status.Signal())
	}
	if x.lostSandbox() {
		x.code = 128 + int(unix.SIGKILL)
	}
	close(x.ended)
}

// runscLost is what runsc ends with when it fails itself. A process inside may end with it too, but leaves no complaint in runsc's log.
const runscLost = 128

// lostSandbox reports whether the sentry was killed under a running process, which then was killed with it.
func (x *Exec) lostSandbox() bool {
	if x.record.Runtime != Runsc || x.code != runscLost {
		return false
	}
	return x.hasPid() && lastMessage(x.work.In("log"), nil) != ""
}

func (x *Exec) pidFile() confine.Entry { return x.work.In("pid") }

// hasPid is whether the runtime has written the process's number, which it does once the process runs.
func (x *Exec) hasPid() bool {
	stat, err := x.pidFile().Lstat()
	return err == nil && stat.Size > 0
}

// Ended is closed when the process has ended.
func (x *Exec) Ended() <-chan struct{} { return x.ended }

// ExitCode is how it ended; Ended is closed.
func (x *Exec) ExitCode() int { return x.code }

// Resize changes the terminal's size.
func (x *Exec) Resize(size TerminalSize) error {
	return control(x.Stdout, func(fd uintptr) error {
		return unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
	})
}

// Close kills the process if it runs and frees everything.
func (x *Exec) Close() {
	x.once.Do(func() {
		select {
		case <-x.ended:
		default:
			x.kill()
		}
		x.closeStreams()
		_ = x.work.RemoveAll()
	})
}

func (x *Exec) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if text, err := x.pidFile().ReadFile(pidBytesMax); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 1 {
			if x.record.Runtime == Runsc {
				args := signalArgs{CID: runtimeID(x.record.ID), Signo: int32(unix.SIGKILL), PID: int32(pid), Mode: deliverToProcess}
				_ = callSentry(ctx, x.engine.controlSocket(x.record.SandboxID), "containerManager.Signal", args, nil)
			} else {
				x.killChild(pid)
			}
		}
	}
	select {
	case <-x.ended:
	case <-time.After(2 * time.Second):
		_ = x.cmd.Process.Kill()
		<-x.ended
	}
}

// killChild kills the process that runc started. Its parent is runc, whose number no other process can have: it has not been waited for.
func (x *Exec) killChild(pid int) {
	stat, err := readStat(pid)
	if err != nil {
		return
	}
	p, err := openProcess(pid, stat.startTicks)
	if err != nil {
		return
	}
	defer p.close()
	if stat.parent == x.cmd.Process.Pid {
		_ = p.signal(unix.SIGKILL)
	}
}

func (x *Exec) closeStreams() {
	for _, f := range []*os.File{x.Stdin, x.Stdout, x.Stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// openPeer unlocks a terminal and opens its other end. The master stays non-blocking, so that closing it ends a read.
func openPeer(master *os.File) (*os.File, error) {
	var peer uintptr
	failed := control(master, func(fd uintptr) error {
		if err := unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		var errno syscall.Errno
		peer, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCGPTPEER, uintptr(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC))
		if errno != 0 {
			return errno
		}
		return nil
	})
	if failed != nil {
		return nil, failed
	}
	return os.NewFile(peer, "terminal"), nil
}

func control(f *os.File, run func(fd uintptr) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = run(fd) })
	return errors.Join(err, failed)
}
