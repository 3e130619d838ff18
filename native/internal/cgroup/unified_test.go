package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// What needs the kernel's own unified hierarchy with controllers cannot be had on a machine whose controllers are mounted as v1: that limits take effect, that a
// group is empty when its last process has gone, and that a process begins in it. Here a directory tree stands for it.

func TestUnifiedIsToldFromTheOthersAndFreezesWithoutAController(t *testing.T) {
	h, _ := unified(t, "cpu memory pids")
	if got := h.Limits(); h.Mode() != "v2" || !slices.Contains(got, "freezer") || !slices.Contains(got, "memory") {
		t.Errorf("mode %s, limits %v", h.Mode(), got)
	}
	if got, want := h.Path("pod"), "/"+inst.Cgroup()+"/pod"; got != want {
		t.Errorf("path %s, not %s", got, want)
	}
}

func TestUnifiedListsItsGroupsAndRemovesThemWithWhatIsBelow(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	own := filepath.Join(root, inst.Cgroup())
	for _, name := range []string{"one/container", "two", callsGroup} {
		if err := os.MkdirAll(filepath.Join(own, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := h.List(); err != nil || !slices.Equal(slices.Sorted(slices.Values(list)), []string{"one", "pod", "two"}) {
		t.Errorf("%v, %v", list, err)
	}
	if err := h.Remove("one"); err != nil {
		t.Error(err)
	}
	if err := h.RemoveListed("two"); err != nil {
		t.Error(err)
	}
	if err := h.RemoveListed("../two"); err == nil {
		t.Error("a path was taken for a name")
	}
	if list, _ := h.List(); !slices.Equal(list, []string{"pod"}) {
		t.Errorf("left: %v", list)
	}
}

func TestMembersOfAGroupAreKilledAndThisProcessIsNot(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put(t, dir, "cgroup.procs", strconv.Itoa(os.Getpid())+"\n"+strconv.Itoa(child.Process.Pid)+"\n")
	killMembers(dir)
	_ = child.Wait()
	status, isUnix := child.ProcessState.Sys().(interface{ Signal() unix.Signal })
	if !isUnix || status.Signal() != unix.SIGKILL {
		t.Errorf("%v", child.ProcessState)
	}
}

func TestSharedPagesAreThoseOfAllProcessesBelowAGroup(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	below := filepath.Join(root, inst.Cgroup(), "pod", "container")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := h.SharedBytes("pod"); got != 0 {
		t.Errorf("%d bytes of no process", got)
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	put(t, below, "cgroup.procs", strconv.Itoa(child.Process.Pid)+"\n")
	// At least a page of its program; the kernel counts in kibibytes.
	if got := h.SharedBytes("pod"); got < 1024 || got%1024 != 0 {
		t.Errorf("%d bytes", got)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if got := h.SharedBytes("pod"); got != 0 {
		t.Errorf("%d bytes of a process that has ended", got)
	}
}

func TestUnifiedStartsNothingOutsideTheGroup(t *testing.T) {
	h, root := unified(t, "cpu memory pids")
	mark := filepath.Join(root, "ran")
	// The kernel takes only a directory of its own for the group that a process begins in.
	if err := h.Start(exec.Command("touch", mark), "pod"); err == nil {
		t.Error("a process was started without a group")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("it ran")
	}
}
