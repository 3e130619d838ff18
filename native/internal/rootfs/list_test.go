package rootfs

import (
	"fmt"
	"sync"
	"testing"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/layer"
)

// A root file system that is released while others are listed is not in the list; it does not make the list fail.
func TestListWhileOthersAreReleased(t *testing.T) {
	inst, err := instance.New(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := confine.OpenTree(inst.Host())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	shelf, err := durable.NewShelf(tree)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := layer.NewStore(tree, confine.Caller{Dir: inst.NodeDir()}, shelf)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStore(tree, layers, shelf)
	if err != nil {
		t.Fatal(err)
	}
	put := func(id string) {
		if err := durable.Write(s.recordAt(id), &record{Request: Request{ID: id}}); err != nil {
			t.Error(err)
		}
	}
	put("stays")
	var released sync.WaitGroup
	for lane := range 4 {
		released.Go(func() {
			for i := range 100 {
				id := fmt.Sprintf("goes-%d-%d", lane, i)
				put(id)
				if err := s.recordAt(id).Unlink(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { released.Wait(); close(done) }()
	for {
		list, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, r := range list {
			found = found || r.ID == "stays"
		}
		if !found {
			t.Fatalf("the one that stays is not in %v", list)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
