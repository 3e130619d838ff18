package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const allMemory, allPids = 900 << 20, 5000

func TestUnifiedBoundsAllSandboxesTogether(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	h.parent.bounds = Bounds{MemoryBytes: allMemory, Pids: allPids}
	if _, err := h.Ensure(all); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": strconv.Itoa(allMemory), "memory.swap.max": "max", "pids.max": strconv.Itoa(allPids)} {
		if got := get(t, root, inst.Cgroup(), file); got != want {
			t.Errorf("%s of all is %q, not %q", file, got, want)
		}
	}
}

// legacy is directories that look like mounted controllers of the first version.
func legacy(t *testing.T) (*Hierarchy, string) {
	t.Helper()
	root := t.TempDir()
	var mounts strings.Builder
	for name, files := range map[string][]string{
		"cpu": {"cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"}, "memory": {"memory.limit_in_bytes"}, "pids": {"pids.max"},
	} {
		fmt.Fprintf(&mounts, "40 20 0:30 / %s rw - cgroup cgroup rw,%s\n", filepath.Join(root, name), name)
		for _, dir := range []string{inst.Cgroup(), filepath.Join(inst.Cgroup(), "pod")} {
			for _, file := range files {
				put(t, filepath.Join(root, name, dir), file, "")
			}
		}
	}
	h, err := read(inst, mounts.String(), "4:memory:/\n3:cpu:/\n2:pids:/\n")
	if err != nil {
		t.Fatal(err)
	}
	h.parent.bounds = Bounds{MemoryBytes: allMemory, Pids: allPids}
	return h, root
}

func TestOnlyTheFirstVersionKillsSingly(t *testing.T) {
	first, _ := legacy(t)
	second, root := unified(t, "cpu memory pids")
	for h, mode := range map[*Hierarchy]string{first: "v1", second: "v2"} {
		if h.Mode() != mode || h.KillsSingly() != (mode == "v1") {
			t.Errorf("in mode %s a group kills singly: %t", h.Mode(), h.KillsSingly())
		}
	}
	if _, err := second.Ensure(all); err != nil || get(t, root, inst.Cgroup(), "pod", "memory.oom.group") != "1" {
		t.Errorf("a group that is not killed singly is not killed as one: %v", err)
	}
}

func TestLegacyBoundsAllSandboxesTogether(t *testing.T) {
	h, root := legacy(t)
	if _, err := h.Ensure(all); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory/%s/memory.limit_in_bytes": strconv.Itoa(allMemory), "pids/%s/pids.max": strconv.Itoa(allPids)} {
		if got := get(t, root, fmt.Sprintf(file, inst.Cgroup())); got != want {
			t.Errorf("%s is %q, not %q", file, got, want)
		}
	}
}

func TestBoundsThatAreRefusedFailThePod(t *testing.T) {
	h, root := legacy(t)
	if err := os.Remove(filepath.Join(root, "memory", inst.Cgroup(), "memory.limit_in_bytes")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Ensure(all); err == nil || !strings.Contains(err.Error(), "bounds of all sandboxes") {
		t.Errorf("%v", err)
	}
}

func TestBoundsAreSetAgainInAGroupThatIsMadeAgain(t *testing.T) {
	h, root := legacy(t)
	if _, err := h.Ensure(all); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root, "memory", inst.Cgroup())); err != nil {
		t.Fatal(err)
	}
	// A directory of the kernel's comes with its files; this one has none, so that setting the bound fails.
	if _, err := h.Ensure(all); err == nil || !strings.Contains(err.Error(), "bounds of all sandboxes") {
		t.Errorf("the bounds were not set again: %v", err)
	}
}
