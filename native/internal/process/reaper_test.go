package process

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PID 1 gets orphans of processes that others put into the container, also while it has no child of its own, and none of them may
// stay a zombie.
func TestReaperAdoptsOrphansOfOthers(t *testing.T) {
	const inside = "AGENT_SANDBOX_TEST_PID_ONE"
	if os.Getenv(inside) != "" {
		// Once as a daemon that has started something before, and waits for the next child.
		if os.Getenv(inside) == "late" {
			said(t, shell("true"))
			time.Sleep(20 * time.Millisecond)
		}
		testReaper().AdoptOrphans()
		os.Stdout.WriteString("ready\n")
		io.Copy(io.Discard, os.Stdin)
		return
	}
	for _, when := range []string{"early", "late"} {
		one := launch(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, []string{inside + "=" + when},
			os.Args[0], "-test.run", "^TestReaperAdoptsOrphansOfOthers$", "-test.count=1")
		defer one.finish()
		if line, err := one.output.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q %v", line, err)
		}
		pid := strconv.Itoa(one.pid)
		orphans := func() string {
			states, _ := launch(t, nil, nil, "ps", "-o", "stat=,args=", "--ppid", pid).finish()
			return strings.TrimSpace(states)
		}
		for round := range 3 {
			if text, code := launch(t, nil, nil, "nsenter", "-t", pid, "-p", "sh", "-c", "sleep 0.3 > /dev/null 2>&1 &").finish(); code != 0 {
				t.Fatalf("%d: %s", code, text)
			}
			if round == 0 && orphans() == "" {
				t.Error("there was no orphan to adopt")
			}
			for began := time.Now(); orphans() != ""; time.Sleep(20 * time.Millisecond) {
				if time.Since(began) > 5*time.Second {
					t.Fatalf("%s: %s", when, orphans())
				}
			}
		}
	}
}

// launched is a program that a test runs beside the registry. It is the reaper that waits for it: package os/exec would find its
// children collected already.
type launched struct {
	pid    int
	input  *os.File
	output *bufio.Reader
	file   *os.File
	ended  chan syscall.WaitStatus
}

func launch(t *testing.T, attributes *syscall.SysProcAttr, variables []string, argv ...string) *launched {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		t.Fatal(err)
	}
	stdin, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	file, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	l := &launched{input: input, output: bufio.NewReader(file), file: file, ended: make(chan syscall.WaitStatus, 1)}
	files := []uintptr{stdin.Fd(), stdout.Fd(), stdout.Fd()}
	l.pid, err = testReaper().Start(func() (int, error) {
		return syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: append(os.Environ(), variables...), Files: files, Sys: attributes})
	}, func(status syscall.WaitStatus) { l.ended <- status })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// finish ends the input, and returns the rest of the output and the exit code, which is -1 after a signal.
func (l *launched) finish() (string, int) {
	l.input.Close()
	text, _ := io.ReadAll(l.output)
	l.file.Close()
	status := <-l.ended
	return string(text), status.ExitStatus()
}
