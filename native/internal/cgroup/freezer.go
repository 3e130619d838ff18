package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// Frozen is what a pod whose processes stand still takes of the machine's memory.
type Frozen struct {
	ResidentBeforeBytes int64 `json:"residentBeforeBytes"`
	// ResidentBytes is what is left after as much was reclaimed as could be within reclaimMax; more may follow.
	ResidentBytes int64 `json:"residentBytes"`
	// HasSwap is whether this machine can put memory of programs elsewhere; without swap only pages of files are given back.
	HasSwap bool `json:"hasSwap"`
}

const (
	// The kernel stops each task at its next return to user space: below a millisecond for a sentry at rest. A task that waits for a disk
	// that does not answer keeps the whole group from standing still.
	freezeMax = 2 * time.Second
	// A tracer that waits in the kernel for a process that stands still already never stops itself, so that a try that takes longer than this is
	// begun anew: one in a few dozen freezes of a sandbox that starts processes all the time, measured with the first version of cgroups.
	tryMax = 20 * time.Millisecond
	// How long processes run between two tries.
	betweenTries = time.Millisecond
	// A group is usually frozen, or thawed, at the first look.
	freezerPauseMin = 50 * time.Microsecond
	freezerPauseMax = 5 * time.Millisecond
	// How long a caller waits for memory to be given back: a wake that comes right after the freeze waits as long. The kernel goes on with it.
	reclaimMax = 100 * time.Millisecond
	// One request to give memory back, so that one that is thawed meanwhile is left alone soon.
	reclaimStepBytes = 64 << 20
)

// Freeze stops every process of a pod where it stands and gives back what memory it can. One that does not stop in time is set going again.
func (h *Hierarchy) Freeze(ctx context.Context, id string) (Frozen, error) {
	if err := h.checkFreezer(id); err != nil {
		return Frozen{}, err
	}
	opened, err := h.starts.close(ctx, id)
	if err != nil {
		return Frozen{}, err
	}
	defer opened()
	// A thread of this program that waits in the group would stand still with it.
	h.recall(id)
	before := h.resident(id)
	if err := h.freeze(ctx, id); err != nil {
		return Frozen{}, errors.Join(err, h.thaw(id))
	}
	h.reclaim(id)
	return Frozen{ResidentBeforeBytes: before, ResidentBytes: h.resident(id), HasSwap: hasSwap()}, nil
}

// Thaw lets the processes of a pod go on. One that was not frozen is a success.
func (h *Hierarchy) Thaw(id string) error {
	if err := h.checkFreezer(id); err != nil {
		return err
	}
	return h.thaw(id)
}

// IsFrozen reports whether a pod's processes stand still, or are on their way there: nothing may be started in it, and no signal arrives.
func (h *Hierarchy) IsFrozen(id string) bool {
	if id == "" || !h.has("freezer") {
		return false
	}
	dir, v2 := h.dir("freezer", id)
	if v2 {
		return number(dir, "cgroup.freeze") == 1
	}
	text, err := os.ReadFile(filepath.Join(dir, "freezer.state"))
	return err == nil && strings.TrimSpace(string(text)) != "THAWED"
}

func (h *Hierarchy) checkFreezer(id string) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	if !h.has("freezer") {
		return hosterr.New(hosterr.Unsupported, "this machine has no freezer for cgroups")
	}
	if !h.Exists(id) {
		return hosterr.New(hosterr.NotFound, "cgroup %s does not exist", id)
	}
	return nil
}

func (h *Hierarchy) freeze(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, freezeMax)
	defer cancel()
	for {
		err := h.tryFreeze(ctx, id)
		if err == nil || !hosterr.Is(err, hosterr.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		if err := h.thaw(id); err != nil {
			return err
		}
		time.Sleep(betweenTries)
	}
}

func (h *Hierarchy) tryFreeze(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, tryMax)
	defer cancel()
	dir, v2 := h.dir("freezer", id)
	file, value := "freezer.state", "FROZEN"
	if v2 {
		file, value = "cgroup.freeze", "1"
	}
	if err := write(dir, file, value); err != nil {
		return fmt.Errorf("freeze %s: %w", id, err)
	}
	return h.await(ctx, id, true)
}

// thaw also forbids swap again, which is allowed only while a pod stands still.
func (h *Hierarchy) thaw(id string) error {
	dir, v2 := h.dir("freezer", id)
	file, value := "freezer.state", "THAWED"
	if v2 {
		file, value = "cgroup.freeze", "0"
	}
	if err := write(dir, file, value); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("thaw %s: %w", id, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), freezeMax)
	defer cancel()
	return errors.Join(h.await(ctx, id, false), h.allowSwap(id, "0"))
}

// await looks until the kernel says that all processes stand still, or that none has to.
func (h *Hierarchy) await(ctx context.Context, id string, frozen bool) error {
	for pause := freezerPauseMin; ; pause = min(pause*2, freezerPauseMax) {
		is, err := h.isStill(id)
		if err != nil {
			return fmt.Errorf("freezer of %s: %w", id, err)
		}
		if is == frozen {
			return nil
		}
		select {
		case <-ctx.Done():
			return hosterr.New(hosterr.DeadlineExceeded, "processes of cgroup %s cannot be %s in time", id, map[bool]string{true: "stopped", false: "set going"}[frozen])
		case <-time.After(pause):
		}
	}
}

// isStill reads the kernel's own word for it. Reading is also what makes the first version look at its tasks.
func (h *Hierarchy) isStill(id string) (bool, error) {
	dir, v2 := h.dir("freezer", id)
	file := "freezer.state"
	if v2 {
		file = "cgroup.events"
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return false, err
	}
	if v2 {
		return field(dir, file, "frozen") == 1, nil
	}
	return strings.TrimSpace(string(text)) == "FROZEN", nil
}

// resident is the memory that a pod takes, pages of files included.
func (h *Hierarchy) resident(id string) int64 {
	dir, v2 := h.dir("memory", id)
	if v2 {
		return number(dir, "memory.current")
	}
	return number(dir, "memory.usage_in_bytes")
}

// reclaim asks the kernel for the memory of a frozen pod and waits for it at most reclaimMax. What is refused stays where it is: a pod sleeps as well
// with its memory as without.
func (h *Hierarchy) reclaim(id string) {
	if !h.has("memory") {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		dir, v2 := h.dir("memory", id)
		if !v2 {
			_ = write(dir, "memory.force_empty", "0")
			return
		}
		if h.allowSwap(id, "max") != nil {
			return
		}
		for before := h.resident(id); before > 0 && h.IsFrozen(id); {
			// The kernel refuses where it could give back only a part.
			_ = write(dir, "memory.reclaim", strconv.Itoa(reclaimStepBytes))
			after := h.resident(id)
			if after >= before {
				return
			}
			before = after
		}
	}()
	select {
	case <-done:
	case <-time.After(reclaimMax):
	}
}

// allowSwap sets how much of a pod's memory may be in swap; the first version has no such limit beside that of memory.
func (h *Hierarchy) allowSwap(id, limit string) error {
	dir, v2 := h.dir("memory", id)
	if !v2 || !h.has("memory") {
		return nil
	}
	// Without swap accounting there is no such file, and nothing to limit.
	if err := write(dir, "memory.swap.max", limit); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func hasSwap() bool {
	var system unix.Sysinfo_t
	return unix.Sysinfo(&system) == nil && system.Totalswap > 0
}

// ThawMember thaws the pod that a process is in, if it is one of the instance's and stands still.
func (h *Hierarchy) ThawMember(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		// Gone by itself.
		return nil
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || (parts[1] != "freezer" && parts[1] != "") {
			continue
		}
		rest, isOurs := strings.CutPrefix(parts[2], "/"+h.inst.Cgroup()+"/")
		id, _, _ := strings.Cut(rest, "/")
		if isOurs && instance.CheckID("id", id) == nil && h.IsFrozen(id) {
			return h.thaw(id)
		}
	}
	return nil
}
