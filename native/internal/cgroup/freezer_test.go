package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
)

// answering writes what the kernel would: it follows `cgroup.freeze` of a directory that stands for a group.
func answering(t *testing.T, pod string) {
	t.Helper()
	put(t, pod, "cgroup.freeze", "0")
	put(t, pod, "cgroup.events", "populated 1\nfrozen 0\n")
	done := make(chan struct{})
	stopped := make(chan struct{})
	t.Cleanup(func() { close(done); <-stopped })
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			text, err := os.ReadFile(filepath.Join(pod, "cgroup.freeze"))
			if err != nil || len(text) == 0 {
				continue
			}
			work := filepath.Join(pod, "events.tmp")
			_ = os.WriteFile(work, []byte("populated 1\nfrozen "+string(text[:1])+"\n"), 0o644)
			_ = os.Rename(work, filepath.Join(pod, "cgroup.events"))
		}
	}()
}

func TestUnifiedFreezesReclaimsAndThaws(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	pod := filepath.Join(root, inst.Cgroup(), "pod")
	answering(t, pod)
	put(t, pod, "memory.current", "4096")
	put(t, pod, "memory.reclaim", "")
	if _, err := h.Ensure(all); err != nil {
		t.Fatal(err)
	}
	frozen, err := h.Freeze(t.Context(), "pod")
	if err != nil || frozen.ResidentBeforeBytes != 4096 {
		t.Fatalf("%+v, %v", frozen, err)
	}
	stats, err := h.Stats("pod")
	if err != nil || !stats.Frozen || !h.IsFrozen("pod") {
		t.Errorf("stats %+v, %v", stats, err)
	}
	if get(t, pod, "memory.reclaim") == "" || get(t, pod, "memory.swap.max") != "max" {
		t.Error("nothing was reclaimed, or not to swap")
	}
	if err := h.Thaw("pod"); err != nil || h.IsFrozen("pod") || get(t, pod, "memory.swap.max") != "0" {
		t.Errorf("%v, swap %s", err, get(t, pod, "memory.swap.max"))
	}
}

func TestAFreezeThatDoesNotCompleteIsUndone(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	pod := filepath.Join(root, inst.Cgroup(), "pod")
	put(t, pod, "cgroup.freeze", "0")
	put(t, pod, "cgroup.events", "populated 1\nfrozen 0\n")
	if _, err := h.Freeze(t.Context(), "pod"); !hosterr.Is(err, hosterr.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if h.IsFrozen("pod") {
		t.Error("it was left half frozen")
	}
}

func TestNoStartBeginsWhileAGroupIsFrozenAndNoFreezeWhileOneIsUnderWay(t *testing.T) {
	var s starts
	end, err := s.begin("pod")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.close(ctx, "pod"); err == nil {
		t.Error("it was closed over a start")
	}
	other, err := s.begin("pod")
	if err != nil {
		t.Errorf("a close that was given up keeps starts out: %v", err)
	}
	end()
	other()
	reopen, err := s.close(t.Context(), "pod")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.begin("pod"); !hosterr.Is(err, hosterr.Busy) {
		t.Errorf("a start began: %v", err)
	}
	if _, err := s.close(t.Context(), "pod"); !hosterr.Is(err, hosterr.Busy) {
		t.Errorf("it was closed twice: %v", err)
	}
	reopen()
	if len(s.groups) != 0 {
		t.Errorf("%d gates are left", len(s.groups))
	}
}
