package rootfs

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/layer"
)

// A root file system that is released while others are listed is not in the list; it does not make the list fail.
func TestListWhileOthersAreReleased(t *testing.T) {
	inst, err := instance.New(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	layers, err := layer.NewStore(inst)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStore(inst, layers)
	if err != nil {
		t.Fatal(err)
	}
	put := func(id string) {
		if err := confine.WriteFile(s.recordPath(id), []byte(`{}`), 0o600); err != nil {
			t.Error(err)
		}
	}
	put("stays")
	var released sync.WaitGroup
	for lane := range 4 {
		released.Go(func() {
			for i := range 500 {
				id := fmt.Sprintf("goes-%d-%d", lane, i)
				put(id)
				if err := os.Remove(s.recordPath(id)); err != nil {
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
