package ociruntime

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// tracked are the children that a goroutine waits for; the reaper leaves them alone. Starting and tracking are one step for it.
var tracked = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

// startTracked starts a child in a session of its own, so that no signal to us reaches it.
func startTracked(cmd *exec.Cmd, start func() error) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	tracked.Lock()
	defer tracked.Unlock()
	if err := start(); err != nil {
		return err
	}
	tracked.pids[cmd.Process.Pid] = true
	return nil
}

func waitTracked(cmd *exec.Cmd) error {
	err := cmd.Wait()
	tracked.Lock()
	defer tracked.Unlock()
	delete(tracked.pids, cmd.Process.Pid)
	return err
}

func runTracked(cmd *exec.Cmd) error {
	if err := startTracked(cmd, cmd.Start); err != nil {
		return err
	}
	return waitTracked(cmd)
}

// reapOrphans reaps what the runtimes left behind: sentries, gofers and their helpers whose parent has gone.
func reapOrphans() {
	// One pending signal is enough: every round looks at all children.
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	for range died {
		reapOnce()
	}
}

func reapOnce() {
	tracked.Lock()
	defer tracked.Unlock()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%s/children", task.Name()))
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil || tracked.pids[pid] || !isRuntimeZombie(pid) {
				continue
			}
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// isRuntimeZombie tells the runtimes' processes from children that other packages wait for (nft, mkfs).
func isRuntimeZombie(pid int) bool {
	stat, err := readStat(pid)
	if err != nil || stat.state != 'Z' {
		return false
	}
	return strings.HasPrefix(stat.command, "runsc") || strings.HasPrefix(stat.command, "runc") || strings.HasPrefix(stat.command, "exe") || strings.HasPrefix(stat.command, "sandbox-host")
}

type procStat struct {
	command string
	state   byte
	parent  int
	// startTicks tells a process from a later one with the same number.
	startTicks uint64
}

func readStat(pid int) (procStat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	line := string(text)
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return procStat{}, fmt.Errorf("stat of %d: %q", pid, line)
	}
	fields := strings.Fields(line[end+1:])
	const startField = 19
	if len(fields) <= startField {
		return procStat{}, fmt.Errorf("stat of %d: %q", pid, line)
	}
	ticks, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return procStat{}, err
	}
	parent, err := strconv.Atoi(fields[1])
	return procStat{command: line[open+1 : end], state: fields[0][0], parent: parent, startTicks: ticks}, err
}

// alive reports whether the very process still runs.
func alive(pid int, startTicks uint64) bool {
	if pid <= 0 {
		return false
	}
	stat, err := readStat(pid)
	return err == nil && stat.startTicks == startTicks && stat.state != 'Z' && stat.state != 'X'
}

// endUnknown ends what a call of the runtime started that was killed before it had written that down: the runtime itself knows nothing of it, and
// the next container of that name would find its control socket and its address taken.
func (e *Engine) endUnknown(ctx context.Context, id string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !namesBundle(pid, e.containerDir(id).Path()) {
			continue
		}
		stat, err := readStat(pid)
		if err != nil {
			// Gone by itself.
			continue
		}
		if err := endProcess(ctx, pid, stat.startTicks); err != nil {
			return err
		}
	}
	return e.controlSocket(id).Remove()
}

// namesBundle is whether a process has a container's directory among its arguments, as sentries and gofers do.
func namesBundle(pid int, dir string) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	for _, arg := range strings.Split(string(cmdline), "\x00") {
		if strings.TrimPrefix(arg, "--bundle=") == dir {
			return true
		}
	}
	return false
}
