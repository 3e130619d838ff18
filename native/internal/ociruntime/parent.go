package ociruntime

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"golang.org/x/sys/unix"
)

// parentName is the record of a container's parent.
const parentName = "parent.json"

type parentRecord struct {
	Pid        int    `json:"pid"`
	StartTicks uint64 `json:"startTicks"`
}

// Check refuses what names no process.
func (p *parentRecord) Check() error {
	if p.Pid <= 0 || p.StartTicks == 0 {
		return fmt.Errorf("process %d, begun at %d, is none", p.Pid, p.StartTicks)
	}
	return nil
}

// Parent is the whole life of a runc container's parent: it calls the runtime, says on descriptor 3 that the container started, waits for its
// first process and writes how it ended. It returns the program's exit code.
func Parent(bundle string, command []string) int {
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP, unix.SIGINT, unix.SIGTERM)
	told := os.NewFile(3, "told")
	lock := os.NewFile(4, "lock")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, os.Environ()
	if err := cmd.Run(); err != nil {
		return 1
	}
	tree, err := confine.OpenTree(bundle)
	if err != nil {
		return 1
	}
	dir := tree.At()
	text, err := dir.In("pid").ReadFile(pidBytesMax)
	if err != nil {
		return 1
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 1
	}
	stat, err := readStat(os.Getpid())
	if err != nil {
		return 1
	}
	if err := durable.Write(dir.In(parentName), &parentRecord{Pid: os.Getpid(), StartTicks: stat.startTicks}); err != nil {
		return 1
	}
	_, _ = told.WriteString("started")
	told.Close()
	// From here on the container may be deleted.
	lock.Close()
	// The container's output belongs to the container alone.
	os.Stdin.Close()
	os.Stdout.Close()
	os.Stderr.Close()
	return waitAndWrite(dir, pid)
}

func waitAndWrite(dir confine.Entry, pid int) int {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1
		case ended == pid:
			if err := writeExitFile(dir, exitOf(uint32(status), time.Now())); err != nil {
				return 1
			}
			return 0
		}
	}
}
