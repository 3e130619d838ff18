package cgroup

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

// Bounds is what all sandboxes of an instance together may take of the machine; zero is no bound. The limits of pods may add up to more.
type Bounds struct {
	MemoryBytes int64
	Pids        int64
}

// parent is the group that all groups of an instance are in.
type parent struct {
	bounds Bounds
	mu     sync.Mutex
	// isBounded: this program has set the bounds of the group that is there. An earlier one may have set others.
	isBounded bool
}

// ensureParent makes the group of all sandboxes and bounds it.
func (h *Hierarchy) ensureParent() error {
	h.parent.mu.Lock()
	defer h.parent.mu.Unlock()
	for _, dir := range h.dirs("") {
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			h.parent.isBounded = false
		} else if !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	if err := h.ownOrRefuse(); err != nil {
		return err
	}
	if h.parent.isBounded {
		return nil
	}
	if err := h.enableV2(); err != nil {
		return err
	}
	if err := errors.Join(h.weigh(), h.boundMemory(), h.boundPids()); err != nil {
		return fmt.Errorf("bounds of all sandboxes: %w", err)
	}
	h.parent.isBounded = true
	return nil
}

// weigh gives the sandboxes of the instance together the weight of as many ordinary processes as there are processors. A group weighs as much
// as one process otherwise, so that a machine with other work would starve all of them; with more weight, they would starve the engine.
func (h *Hierarchy) weigh() error {
	if !h.has("cpu") {
		return nil
	}
	dir, v2 := h.dir("cpu", "")
	if v2 {
		return write(dir, "cpu.weight", strconv.Itoa(min(weightDefault*runtime.NumCPU(), weightMax)))
	}
	return write(dir, "cpu.shares", strconv.Itoa(min(sharesDefault*runtime.NumCPU(), sharesMax)))
}

// boundMemory leaves the rest of the machine to the engine: at this limit the kernel kills among the processes of sandboxes only.
func (h *Hierarchy) boundMemory() error {
	if h.parent.bounds.MemoryBytes == 0 || !h.has("memory") {
		return nil
	}
	limit := strconv.FormatInt(h.parent.bounds.MemoryBytes, 10)
	dir, v2 := h.dir("memory", "")
	if !v2 {
		return write(dir, "memory.limit_in_bytes", limit)
	}
	// Pods forbid it each for itself, and allow it while they stand still.
	if err := write(dir, "memory.swap.max", "max"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return write(dir, "memory.max", limit)
}

// boundPids leaves process ids to the engine.
func (h *Hierarchy) boundPids() error {
	if h.parent.bounds.Pids == 0 || !h.has("pids") {
		return nil
	}
	dir, _ := h.dir("pids", "")
	return write(dir, "pids.max", strconv.FormatInt(h.parent.bounds.Pids, 10))
}
