package cgroup

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// oneController is a machine whose only controller is pids of v1; the files of its groups are ordinary ones.
func oneController(t *testing.T) (h *Hierarchy, pod, home func() string) {
	t.Helper()
	mount := filepath.Join(t.TempDir(), "pids")
	put(t, filepath.Join(mount, "home"), "tasks", "")
	h, err := read(inst, fmt.Sprintf("40 20 0:30 / %s rw - cgroup cgroup rw,pids\n", mount), "4:pids:/home\n")
	if err != nil {
		t.Fatal(err)
	}
	return h, func() string { return get(t, mount, inst.Cgroup(), "pod", "tasks") }, func() string { return get(t, mount, "home", "tasks") }
}

// makeGroup stands for the kernel, which fills a new group with its files.
func makeGroup(t *testing.T, h *Hierarchy) {
	t.Helper()
	for _, dir := range h.dirs("pod") {
		put(t, dir, "tasks", "")
		put(t, dir, "pids.max", "")
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestAThreadWaitsInTheGroupAndGoesHomeWithTheFirstProcess(t *testing.T) {
	h, pod, home := oneController(t)
	makeGroup(t, h)
	h.send("pod", waitMax)
	eventually(t, "no thread came", func() bool { return pod() != "" })
	came := pod()
	cmd := exec.Command("/bin/true")
	if err := h.Start(cmd, "pod"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	eventually(t, "the thread did not go home", func() bool { return home() == came })
	if h.take("pod", nil) != nil {
		t.Error("a thread is still waiting")
	}
	// The next process has to send for one.
	if err := h.Start(exec.Command("/bin/true"), "pod"); err != nil {
		t.Error(err)
	}
}

func TestAGroupIsRemovedWithoutTheThreadThatWaitsThere(t *testing.T) {
	h, pod, home := oneController(t)
	makeGroup(t, h)
	h.send("pod", waitMax)
	eventually(t, "no thread came", func() bool { return pod() != "" })
	h.recall("pod")
	if home() != pod() {
		t.Errorf("thread %s is not home: %q", pod(), home())
	}
	h.recall("pod")
}

func TestAThreadThatCannotEnterFailsTheStart(t *testing.T) {
	h, _, _ := oneController(t)
	makeGroup(t, h)
	h.send("absent", waitMax)
	cmd := exec.Command("/bin/true")
	if err := h.Start(cmd, "absent"); err == nil || cmd.Process != nil {
		t.Errorf("started outside its group: %v", err)
	}
}
