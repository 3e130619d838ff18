package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agent-sandbox.dev/native/internal/hosterr"
)

// twin is a second program that sees the same groups under the same name.
func twin(h *Hierarchy) *Hierarchy {
	return &Hierarchy{inst: h.inst, v1: h.v1, others: h.others, home: h.home, v2: h.v2, v2Controllers: h.v2Controllers,
		threads: threads{waiting: map[string]*thread{}}, holds: holds{files: map[string]*os.File{}}}
}

func TestGroupsOfAnotherEngineOfTheSameNameAreLeftAlone(t *testing.T) {
	first, root := unified(t, "cpu memory pids")
	if _, err := first.Ensure(all); err != nil {
		t.Fatal(err)
	}
	second := twin(first)
	if list, err := second.List(); err != nil || len(list) > 0 {
		t.Errorf("the groups of another are listed: %v, %v", list, err)
	}
	if err := second.RemoveAll(); err != nil {
		t.Error(err)
	}
	_, err := second.Ensure(all)
	for _, got := range []error{err, second.Remove("pod"), second.RemoveListed("c.one")} {
		if !hosterr.Is(got, hosterr.Busy) || !strings.Contains(got.Error(), "another root or container") {
			t.Errorf("work in the groups of another ended with %v", got)
		}
	}
	if _, err := os.Stat(filepath.Join(root, inst.Cgroup(), "pod")); err != nil {
		t.Errorf("the group of another: %v", err)
	}
	first.holds.giveBack()
	if list, err := second.List(); err != nil || !slices.Equal(list, []string{"pod"}) {
		t.Errorf("after its end the groups are %v, %v", list, err)
	}
}

func TestGroupThatWasMadeAgainIsHeldAgain(t *testing.T) {
	first, root := unified(t, "cpu memory pids")
	if _, err := first.List(); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(root, inst.Cgroup())
	if err := os.Rename(own, own+".gone"); err != nil {
		t.Fatal(err)
	}
	if list, err := first.List(); err != nil || len(list) > 0 || len(first.holds.files) > 0 {
		t.Errorf("without the group: %v, %v, %d held", list, err, len(first.holds.files))
	}
	put(t, filepath.Join(own, "pod"), "pids.max", "")
	if list, err := first.List(); err != nil || !slices.Equal(list, []string{"pod"}) {
		t.Errorf("made again, it has %v, %v", list, err)
	}
	if list, err := twin(first).List(); err != nil || len(list) > 0 {
		t.Errorf("made again, another lists %v, %v", list, err)
	}
}
