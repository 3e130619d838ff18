package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
)

var inst = instance.Instance{ID: "abcdef"}

// unified is a directory that looks like a mounted unified hierarchy.
func unified(t *testing.T, controllers string) (*Hierarchy, string) {
	t.Helper()
	root := t.TempDir()
	put(t, root, "cgroup.controllers", controllers)
	for _, dir := range []string{root, filepath.Join(root, inst.Cgroup()), filepath.Join(root, inst.Cgroup(), "pod")} {
		for _, name := range []string{"cgroup.subtree_control", "cpu.max", "cpu.weight", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max"} {
			put(t, dir, name, "")
		}
	}
	h, err := read(inst, fmt.Sprintf("30 20 0:26 / %s rw - cgroup2 cgroup2 rw\n", root), "0::/init.scope\n")
	if err != nil {
		t.Fatal(err)
	}
	return h, root
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

var all = Request{ID: "pod", CPUMillis: 1500, CPUShares: 2048, MemoryBytes: 64 << 20, Pids: 100}

func TestUnifiedHoldsEveryLimit(t *testing.T) {
	h, root := unified(t, "cpuset cpu io memory pids")
	report, err := h.Ensure(all)
	if err != nil || len(report.Unenforced) > 0 {
		t.Fatalf("%v, unenforced %v", err, report.Unenforced)
	}
	if h.Mode() != "v2" || !slices.Equal(h.Limits(), []string{"cpu", "memory", "pids", "freezer"}) {
		t.Errorf("mode %s, limits %v", h.Mode(), h.Limits())
	}
	for _, dir := range []string{root, filepath.Join(root, inst.Cgroup())} {
		if got := get(t, dir, "cgroup.subtree_control"); got != "+cpu +memory +pids" {
			t.Errorf("%s delegates %q", dir, got)
		}
	}
	pod := filepath.Join(root, inst.Cgroup(), "pod")
	for file, want := range map[string]string{
		"cpu.max": "150000 100000", "cpu.weight": "79", "memory.max": strconv.Itoa(64 << 20), "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "100",
	} {
		if got := get(t, pod, file); got != want {
			t.Errorf("%s is %q, not %q", file, got, want)
		}
	}
	if got := get(t, root, inst.Cgroup(), "cpu.weight"); got != strconv.Itoa(100*runtime.NumCPU()) {
		t.Errorf("all sandboxes weigh %s", got)
	}
}

func TestUnifiedWithoutLimitsIsUnlimitedAgain(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	for _, r := range []Request{all, {ID: "pod", CPUShares: 2, Pids: 50}} {
		if _, err := h.Ensure(r); err != nil {
			t.Fatal(err)
		}
	}
	pod := filepath.Join(root, inst.Cgroup(), "pod")
	for file, want := range map[string]string{"cpu.max": "max 100000", "cpu.weight": "1", "memory.max": "max", "pids.max": "50"} {
		if got := get(t, pod, file); got != want {
			t.Errorf("%s is %q, not %q", file, got, want)
		}
	}
}

func TestUnifiedSaysWhatItCannotHold(t *testing.T) {
	h, _ := unified(t, "cpu pids")
	report, err := h.Ensure(all)
	if err != nil || !slices.Equal(report.Unenforced, []string{"memory"}) {
		t.Errorf("%v, unenforced %v", err, report.Unenforced)
	}
	if slices.Contains(h.Limits(), "memory") {
		t.Error("memory is offered")
	}
}

func TestUnifiedFailsWhenALimitIsRefused(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	if err := os.Remove(filepath.Join(root, inst.Cgroup(), "pod", "memory.max")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Ensure(all); err == nil {
		t.Error("a refused memory limit is no failure")
	}
}

func TestUnifiedNeedsNoSwapAccounting(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	if err := os.Remove(filepath.Join(root, inst.Cgroup(), "pod", "memory.swap.max")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Ensure(all); err != nil {
		t.Error(err)
	}
}

func TestUnifiedFailsWhenControllersAreNotDelegated(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	if err := os.Remove(filepath.Join(root, "cgroup.subtree_control")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Ensure(all); !hosterr.Is(err, hosterr.Unsupported) {
		t.Errorf("%v", err)
	}
}

func TestUnifiedAsksForNoMoreThanIsMissing(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	put(t, root, "cgroup.subtree_control", "cpu memory pids")
	put(t, filepath.Join(root, inst.Cgroup()), "cgroup.subtree_control", "cpu")
	if _, err := h.Ensure(all); err != nil {
		t.Fatal(err)
	}
	if got := get(t, root, "cgroup.subtree_control"); got != "cpu memory pids" {
		t.Errorf("the root was written: %q", got)
	}
	if got := get(t, root, inst.Cgroup(), "cgroup.subtree_control"); got != "+memory +pids" {
		t.Errorf("below it, %q was asked for", got)
	}
}

func TestUnifiedCountsUse(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	pod := filepath.Join(root, inst.Cgroup(), "pod")
	put(t, pod, "memory.current", "5000\n")
	put(t, pod, "memory.stat", "anon 1\ninactive_file 2000\n")
	put(t, pod, "memory.events", "low 0\nmax 7\noom 3\noom_kill 2\n")
	put(t, pod, "cpu.stat", "usage_usec 77\nuser_usec 1\n")
	put(t, pod, "pids.current", "9\n")
	put(t, pod, "pids.events", "max 4\n")
	stats, err := h.Stats("pod")
	if want := (Stats{CPUUsageUsec: 77, MemoryBytes: 5000, WorkingSetBytes: 3000, Pids: 9, OOMKills: 2, MemoryRefused: 7, PidsRefused: 4}); err != nil || stats != want {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestHybridUsesTheControllersWhereTheyAre(t *testing.T) {
	root := t.TempDir()
	var mounts strings.Builder
	for _, name := range []string{"cpu", "memory"} {
		fmt.Fprintf(&mounts, "40 20 0:30 / %s rw - cgroup cgroup rw,%s\n", filepath.Join(root, name), name)
	}
	put(t, filepath.Join(root, "unified"), "cgroup.controllers", "pids")
	put(t, filepath.Join(root, "unified"), "cgroup.subtree_control", "")
	put(t, filepath.Join(root, "unified", inst.Cgroup()), "cgroup.subtree_control", "")
	put(t, filepath.Join(root, "unified", inst.Cgroup(), "pod"), "pids.max", "")
	put(t, filepath.Join(root, "cpu", inst.Cgroup()), "cpu.shares", "")
	for _, name := range []string{"cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"} {
		put(t, filepath.Join(root, "cpu", inst.Cgroup(), "pod"), name, "")
	}
	put(t, filepath.Join(root, "memory", inst.Cgroup(), "pod"), "memory.limit_in_bytes", "")
	fmt.Fprintf(&mounts, "50 20 0:31 / %s rw - cgroup2 cgroup2 rw\n", filepath.Join(root, "unified"))
	h, err := read(inst, mounts.String(), "4:memory:/home\n3:cpu:/\n0::/\n")
	if err != nil {
		t.Fatal(err)
	}
	if report, err := h.Ensure(all); err != nil || len(report.Unenforced) > 0 {
		t.Fatalf("%v, unenforced %v", err, report.Unenforced)
	}
	if h.Mode() != "hybrid" || h.home[filepath.Join(root, "memory")] != filepath.Join(root, "memory", "home") {
		t.Errorf("mode %s, home %v", h.Mode(), h.home)
	}
	for where, want := range map[string]string{
		"cpu/%s/pod/cpu.cfs_quota_us": "150000", "memory/%s/pod/memory.limit_in_bytes": strconv.Itoa(64 << 20), "unified/%s/pod/pids.max": "100",
	} {
		if got := get(t, root, fmt.Sprintf(where, inst.Cgroup())); got != want {
			t.Errorf("%s is %q, not %q", where, got, want)
		}
	}
}
