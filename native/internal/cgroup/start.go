package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// Start starts a command whose every process, from the first instruction on, is in a cgroup. An empty id is the group of
// calls that belong to no pod.
func (h *Hierarchy) Start(cmd *exec.Cmd, id string) error {
	if id == "" {
		id = callsGroup
	}
	if err := h.ensureParent(); err != nil {
		return err
	}
	for _, dir := range h.dirs(id) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if h.usesV2() {
		dir, err := os.Open(filepath.Join(h.v2, h.inst.Cgroup(), id))
		if err != nil {
			return err
		}
		defer dir.Close()
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	ended, err := h.starts.begin(id)
	if err != nil {
		return err
	}
	if h.IsFrozen(id) {
		ended()
		return hosterr.New(hosterr.Busy, "cgroup %s is frozen", id)
	}
	t := h.take(id, nil)
	if t == nil {
		t = newThread()
		go h.occupy(id, t, waitMax)
	}
	o := order{cmd: cmd, result: make(chan error, 1)}
	t.orders <- o
	err = <-o.result
	// The thread is in the group until it is home again, which no caller waits for.
	go func() {
		<-t.left
		ended()
	}()
	return err
}

// enter moves the calling thread into one directory per v1 mount.
func (h *Hierarchy) enter(dirOf func(mount string) string) error {
	thread := strconv.Itoa(unix.Gettid())
	done := map[string]bool{}
	for _, mount := range h.v1 {
		if done[mount] {
			continue
		}
		done[mount] = true
		if err := write(dirOf(mount), "tasks", thread); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}
