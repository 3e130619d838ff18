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
		command := exec.Command(os.Args[0], "-test.run", "^TestReaperAdoptsOrphansOfOthers$", "-test.count=1")
		command.Env = append(os.Environ(), inside+"="+when)
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		input, _ := command.StdinPipe()
		output, _ := command.StdoutPipe()
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		defer command.Wait()
		defer input.Close()
		lines := bufio.NewReader(output)
		if line, err := lines.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q %v", line, err)
		}
		pid := strconv.Itoa(command.Process.Pid)
		orphans := func() string {
			states, _ := exec.Command("ps", "-o", "stat=,args=", "--ppid", pid).Output()
			return strings.TrimSpace(string(states))
		}
		for round := range 3 {
			if out, err := exec.Command("nsenter", "-t", pid, "-p", "/bin/sh", "-c", "sleep 0.3 > /dev/null 2>&1 &").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
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
