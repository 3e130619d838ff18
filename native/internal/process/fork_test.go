package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"agent-sandbox.dev/native/internal/vfork"
	"golang.org/x/sys/unix"
)

// ways are the two ways a child is made: whatever holds for the one must hold for the other.
var ways = map[string]func(*program) (int, error){"vfork": (*program).vfork, "fork": (*program).forkExec}

// bothWays runs a test once for each, with every start of a registry going that way.
func bothWays(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for name := range ways {
		t.Run(name, func(t *testing.T) {
			noVfork.Store(name == "fork")
			defer noVfork.Store(false)
			test(t)
			if noVfork.Load() != (name == "fork") {
				t.Error("it went the other way")
			}
		})
	}
}

// said runs a script and returns what it says.
func said(t *testing.T, spec Spec) string {
	t.Helper()
	p := start(t, newRegistry(t), spec)
	if exit := wait(t, p); exit.Code != 0 {
		t.Fatalf("%v ended with %+v: %s", spec.Command, exit, output(p, Stderr))
	}
	return strings.TrimSpace(output(p, Stdout))
}

func TestForkFailuresAreTheSameBothWays(t *testing.T) {
	directory := t.TempDir()
	plain := filepath.Join(directory, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(directory, "garbage")
	if err := os.WriteFile(garbage, []byte{1, 2, 3, 4}, 0o755); err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	long := strings.Repeat("x", 200_000)
	for name, failing := range map[string]struct {
		program program
		want    syscall.Errno
	}{
		"no program":          {program{path: directory + "/none"}, syscall.ENOENT},
		"not executable":      {program{path: plain}, syscall.EACCES},
		"not a program":       {program{path: garbage}, syscall.ENOEXEC},
		"file as a directory": {program{path: plain + "/true"}, syscall.ENOTDIR},
		"too many arguments":  {program{path: "/bin/true", argv: []string{"true", long}}, syscall.E2BIG},
		"no directory":        {program{path: "/bin/true", dir: directory + "/none"}, syscall.ENOENT},
		"file as cwd":         {program{path: "/bin/true", dir: plain}, syscall.ENOTDIR},
		"a zero in a name":    {program{path: "/bin/tr\x00ue"}, syscall.EINVAL},
		"a zero in the cwd":   {program{path: "/bin/true", dir: "/t\x00mp"}, syscall.EINVAL},
		"a zero in a word":    {program{path: "/bin/true", argv: []string{"true", "\x00"}}, syscall.EINVAL},
	} {
		for way, start := range ways {
			child := failing.program
			if child.argv == nil {
				child.argv = []string{"program"}
			}
			child.files = [3]int{fd, fd, fd}
			_, err := testReaper().Start(func() (int, error) { return start(&child) }, func(syscall.WaitStatus) {})
			if !errors.Is(err, failing.want) {
				t.Errorf("%s, %s: %v, want %v", name, way, err, failing.want)
			}
		}
	}
}

// A child that could not become its program must not stay behind as a zombie, nor must the failure be taken for the kernel's
// not knowing how: the short way would be given up for good.
func TestFailedForkLeavesNothingBehind(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		registry := newRegistry(t)
		before := openDescriptors(t)
		for range 20 {
			if _, err := registry.Start(Spec{Command: []string{"/bin/true\x00"}, Dir: "/"}); err == nil {
				t.Fatal("started")
			}
			if _, err := registry.Start(Spec{Command: []string{"/no/such/program"}, Dir: "/"}); err == nil {
				t.Fatal("started")
			}
		}
		if after := openDescriptors(t); after > before+1 {
			t.Errorf("%d descriptors are open, %d were before", after, before)
		}
		if stat, _ := launch(t, nil, nil, "ps", "-o", "stat=", "--ppid", strconv.Itoa(os.Getpid())).finish(); strings.Contains(stat, "Z") {
			t.Errorf("zombies: %q", stat)
		}
	})
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// status returns a line of the child's own /proc/self/status.
func status(t *testing.T, spec Spec, name string) string {
	t.Helper()
	spec.Command = []string{"/bin/cat", "/proc/self/status"}
	_, rest, _ := strings.Cut(said(t, spec), "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

func TestForkLeavesNoSignalBlockedOrHandled(t *testing.T) {
	// The runtime leaves an ignored signal ignored in children, and so must we.
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	bothWays(t, func(t *testing.T) {
		for _, spec := range []Spec{{Dir: "/", CaptureBytes: 1 << 20}, {Dir: "/", CaptureBytes: 1 << 20, Terminal: &Size{80, 25}}} {
			if blocked := status(t, spec, "SigBlk"); strings.Trim(blocked, "0") != "" {
				t.Errorf("blocked: %s", blocked)
			}
			if handled := status(t, spec, "SigCgt"); strings.Trim(handled, "0") != "" {
				t.Errorf("handled: %s", handled)
			}
			if ignored := status(t, spec, "SigIgn"); strings.TrimLeft(ignored, "0") != "1" {
				t.Errorf("ignored: %s, want SIGHUP alone", ignored)
			}
		}
	})
	// Nor may the thread that forked keep its signals blocked.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	said(t, shell("true"))
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask); err != nil || mask.Val[0] != 0 {
		t.Errorf("the daemon's own thread blocks %x: %v", mask.Val[0], err)
	}
}

func TestForkGivesAGroupOrASession(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		// pid, group, session, and the controlling terminal of field 7.
		script := `read -r pid _ _ _ group session terminal _ < /proc/self/stat; echo $pid $group $session $terminal`
		fields := strings.Fields(said(t, Spec{Command: []string{"/bin/sh", "-c", script}, Dir: "/", CaptureBytes: 1 << 10}))
		if fields[0] != fields[1] || fields[2] == fields[0] {
			t.Errorf("without a terminal: pid, group, session, terminal are %v", fields)
		}
		fields = strings.Fields(said(t, Spec{Command: []string{"/bin/sh", "-c", script}, Dir: "/", CaptureBytes: 1 << 10, Terminal: &Size{80, 25}}))
		if fields[0] != fields[1] || fields[0] != fields[2] || fields[3] == "0" {
			t.Errorf("on a terminal: pid, group, session, terminal are %v", fields)
		}
	})
}

func TestForkAsSomebodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, as the product does")
	}
	bothWays(t, func(t *testing.T) {
		spec := Spec{Dir: "/", CaptureBytes: 1 << 20, User: "1234:4321"}
		if ids := status(t, spec, "Uid"); strings.Join(strings.Fields(ids), " ") != "1234 1234 1234 1234" {
			t.Errorf("uid %s", ids)
		}
		if ids := status(t, spec, "Gid"); strings.Join(strings.Fields(ids), " ") != "4321 4321 4321 4321" {
			t.Errorf("gid %s", ids)
		}
		if groups := status(t, spec, "Groups"); groups != "4321" {
			t.Errorf("groups %s", groups)
		}
		child := &program{path: "/bin/cat", argv: []string{"cat", "/proc/self/status"}, credential: &syscall.Credential{Uid: 1, Gid: 2, Groups: []uint32{3, 4}}}
		if text := carriedOut(t, child); !strings.Contains(text, "\nGroups:\t3 4") || !strings.Contains(text, "\nUid:\t1\t1\t1\t1\n") {
			t.Errorf("%s", text)
		}
		if uid := os.Geteuid(); uid != 0 {
			t.Errorf("the daemon itself became %d", uid)
		}
	})
}

// carriedOut starts a program and returns what it says.
func carriedOut(t *testing.T, child *program) string {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	child.files = [3]int{int(writer.Fd()), int(writer.Fd()), int(writer.Fd())}
	done := make(chan struct{})
	_, err = testReaper().Start(child.start, func(syscall.WaitStatus) { close(done) })
	writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(reader)
	<-done
	return string(text)
}

func TestForkLeaksNoDescriptor(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		registry := newRegistry(t)
		for range 4 {
			start(t, registry, Spec{Command: []string{"/bin/sleep", "30"}, Dir: "/", Stdin: true})
		}
		var strange []int
		for _, name := range strings.Fields(said(t, shell("echo /proc/self/fd/*"))) {
			if fd, _ := strconv.Atoi(filepath.Base(name)); fd > 2 && !isInherited(fd) {
				strange = append(strange, fd)
			}
		}
		// One is the shell's own, to list the others.
		if len(strange) > 1 {
			t.Errorf("the child has %v", strange)
		}
	})
}

// isInherited says whether this process was itself started with a descriptor that it passes on: it opens none such.
func isInherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}

// Many at once, with garbage collected all the while: what a child reads is in memory that the collector knows.
func TestForkManyAtOnce(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		registry, err := NewRegistry(testReaper(), Environment(), 100)
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var collecting, group sync.WaitGroup
		collecting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		})
		for worker := range 6 {
			group.Go(func() {
				for i := range 15 {
					if i%5 == 4 {
						if _, err := registry.Start(Spec{Command: []string{"/no/such/program"}, Dir: "/"}); !errors.Is(err, syscall.ENOENT) {
							t.Errorf("no such program: %v", err)
						}
						continue
					}
					want := fmt.Sprintf("%d of %d", i, worker)
					p, err := registry.Start(Spec{Command: []string{"/bin/sh", "-c", `echo "$WORD $1"`, "sh", want}, Env: map[string]string{"WORD": want}, Dir: "/", CaptureBytes: 1 << 10})
					if err != nil {
						t.Error(err)
						return
					}
					if wait(t, p); output(p, Stdout) != want+" "+want+"\n" {
						t.Errorf("said %q, want %q twice", output(p, Stdout), want)
					}
				}
			})
		}
		group.Wait()
		close(stop)
		collecting.Wait()
	})
}

// The runtime raises the limit of open files for itself; a child must find the one that the daemon was started with.
func TestForkRestoresTheLimitOfOpenFiles(t *testing.T) {
	const inside = "AGENT_SANDBOX_TEST_OPEN_FILES"
	if os.Getenv(inside) == "" {
		script := `ulimit -S -n 300; exec "$0" -test.run '^TestForkRestoresTheLimitOfOpenFiles$' -test.count=1`
		if text, code := launch(t, nil, []string{inside + "=1"}, "sh", "-c", script, os.Args[0]).finish(); code != 0 {
			t.Errorf("%d: %s", code, text)
		}
		return
	}
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil || now.Cur <= 300 || vfork.OpenFiles.Soft != 300 || vfork.OpenFiles.Hard != now.Max {
		t.Fatalf("now %v, at the start %v: %v", now, vfork.OpenFiles, err)
	}
	bothWays(t, func(t *testing.T) {
		if limit := said(t, shell("ulimit -S -n")); limit != "300" {
			t.Errorf("the child may open %s files", limit)
		}
	})
	// Who changes the limit on purpose means the children too.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 400, Max: now.Max}); err != nil {
		t.Fatal(err)
	}
	bothWays(t, func(t *testing.T) {
		if limit := said(t, shell("ulimit -S -n")); limit != "400" {
			t.Errorf("the child may open %s files", limit)
		}
	})
}

// Old kernels do not know the call or its flag, and a filter of system calls may refuse it: the ordinary way must be found.
func TestForkWithoutClone3(t *testing.T) {
	const inside = "AGENT_SANDBOX_TEST_NO_CLONE3"
	if os.Getenv(inside) == "" {
		for _, refusal := range []syscall.Errno{syscall.ENOSYS, syscall.EINVAL, syscall.EPERM} {
			variables := []string{inside + "=" + strconv.Itoa(int(refusal))}
			if text, code := launch(t, nil, variables, os.Args[0], "-test.run", "^TestForkWithoutClone3$", "-test.count=1").finish(); code != 0 {
				t.Errorf("%v: %d: %s", refusal, code, text)
			}
		}
		return
	}
	refusal, _ := strconv.Atoi(os.Getenv(inside))
	refuseClone3(t, refusal)
	for range 2 {
		if text := said(t, shell("echo here")); text != "here" {
			t.Errorf("said %q", text)
		}
	}
	if !noVfork.Load() {
		t.Error("the call was not refused")
	}
	if _, err := newRegistry(t).Start(Spec{Command: []string{"/no/such/program"}, Dir: "/"}); !errors.Is(err, syscall.ENOENT) {
		t.Error(err)
	}
}

// refuseClone3 makes the kernel answer package vfork's kind of clone3 with an error, for the rest of this process. That of the C
// library, by which threads are made, asks with a longer request.
func refuseClone3(t *testing.T, errno int) {
	t.Helper()
	const requestBytes = 64
	filter := []unix.SockFilter{
		// What a filter sees begins with the number of the call; the second argument is at 24.
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 24},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: requestBytes, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(program))); err != 0 {
		t.Fatal(err)
	}
}
