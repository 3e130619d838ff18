package process

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"agent-sandbox.dev/native/internal/vfork"
	"golang.org/x/sys/unix"
)

// program is what a child becomes.
type program struct {
	path        string
	argv        []string
	environment []string
	dir         string
	// files are the child's standard streams; all above 2, and closed when it becomes the program.
	files [3]int
	// terminal makes a session of the child's own, whose terminal is its standard input; otherwise it gets a group of its own.
	terminal   bool
	credential *syscall.Credential
}

// noVfork is set where the kernel, or a filter of system calls, does not know what package vfork asks for.
var noVfork atomic.Bool

var errNoVfork = errors.New("no clone3 with CLONE_CLEAR_SIGHAND here")

// start makes the child, and returns its number when it has become the program.
func (g *program) start() (int, error) {
	if !noVfork.Load() {
		pid, err := g.vfork()
		if err != errNoVfork {
			return pid, err
		}
		noVfork.Store(true)
	}
	return g.forkExec()
}

// forkExec is the ordinary way.
func (g *program) forkExec() (int, error) {
	attributes := &syscall.SysProcAttr{Setpgid: !g.terminal, Setsid: g.terminal, Setctty: g.terminal, Credential: g.credential}
	files := []uintptr{uintptr(g.files[0]), uintptr(g.files[1]), uintptr(g.files[2])}
	return syscall.ForkExec(g.path, g.argv, &syscall.ProcAttr{Dir: g.dir, Env: g.environment, Files: files, Sys: attributes})
}

// plan is a child's calls and everything in the heap that they point to.
type plan struct {
	calls     []vfork.Call
	path, dir *byte
	argv      []*byte
	variables []*byte
	groups    []uint32
	limit     vfork.Limit
}

// vfork is the short way.
func (g *program) vfork() (int, error) {
	p, err := g.plan()
	if err != nil {
		return 0, err
	}
	forkLock.lock()
	pid, failure, errno := vfork.Start(p.calls)
	forkLock.unlock()
	runtime.KeepAlive(p)
	switch err := syscall.Errno(errno); err {
	case 0:
	case syscall.ENOSYS, syscall.EINVAL, syscall.EPERM:
		return 0, errNoVfork
	default:
		return 0, err
	}
	if failure.Errno != 0 {
		// No caller has learned of this child. If the reaper was faster, it is gone just the same.
		for {
			if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
				break
			}
		}
		return 0, syscall.Errno(failure.Errno)
	}
	return pid, nil
}

// plan lays out the child's calls, in the order of syscall.ForkExec.
func (g *program) plan() (p *plan, err error) {
	p = &plan{calls: make([]vfork.Call, 0, 12)}
	if p.path, err = syscall.BytePtrFromString(g.path); err != nil {
		return nil, err
	}
	if p.argv, err = syscall.SlicePtrFromStrings(g.argv); err != nil {
		return nil, err
	}
	if p.variables, err = syscall.SlicePtrFromStrings(g.environment); err != nil {
		return nil, err
	}
	if g.terminal {
		p.add(unix.SYS_SETSID)
	} else {
		p.add(unix.SYS_SETPGID, 0, 0)
	}
	p.become(g.credential)
	if g.dir != "" {
		if p.dir, err = syscall.BytePtrFromString(g.dir); err != nil {
			return nil, err
		}
		p.add(unix.SYS_CHDIR, address(p.dir))
	}
	for stream, file := range g.files {
		p.add(unix.SYS_DUP3, uintptr(file), uintptr(stream), 0)
	}
	if g.terminal {
		p.add(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 1)
	}
	if wasRaised() {
		p.limit = vfork.OpenFiles
		p.add(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, address(&p.limit), 0)
	}
	p.add(unix.SYS_EXECVE, address(p.path), address(&p.argv[0]), address(&p.variables[0]))
	return p, nil
}

// become adds the calls that give the child its user and groups. They are the kernel's own, which change one thread only: those of the C
// library and of package syscall would change all threads of the daemon.
func (p *plan) become(who *syscall.Credential) {
	if who == nil {
		return
	}
	if !who.NoSetGroups {
		p.groups = who.Groups
		p.add(unix.SYS_SETGROUPS, uintptr(len(p.groups)), address(unsafe.SliceData(p.groups)))
	}
	p.add(unix.SYS_SETGID, uintptr(who.Gid))
	p.add(unix.SYS_SETUID, uintptr(who.Uid))
}

func (p *plan) add(number uintptr, args ...uintptr) {
	call := vfork.Call{Number: number}
	copy(call.Args[:], args)
	p.calls = append(p.calls, call)
}

// address is that of something in the heap, which never moves; the plan keeps it alive.
func address[T any](pointer *T) uintptr { return uintptr(unsafe.Pointer(pointer)) }

// wasRaised says whether package syscall has raised the limit of open files, which is for the daemon only, and whether it is still
// that: who changed it since meant the children too. One less than the most is how package syscall marks its own.
func wasRaised() bool {
	var now syscall.Rlimit
	if vfork.OpenFiles.Soft == 0 || vfork.OpenFiles.Soft >= vfork.OpenFiles.Hard-1 {
		return false
	}
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now)
	return err == nil && now.Cur == now.Max-1 && now.Max == vfork.OpenFiles.Hard
}

// forkLock holds syscall.ForkLock while any child is made, as many at once as there are: they need to be kept apart only from
// code that opens a file and marks it to be closed in children with a second call.
var forkLock sharedForkLock

type sharedForkLock struct {
	mu    sync.Mutex
	count int
}

func (l *sharedForkLock) lock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count++; l.count == 1 {
		syscall.ForkLock.Lock()
	}
}

func (l *sharedForkLock) unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count--; l.count == 0 {
		syscall.ForkLock.Unlock()
	}
}
