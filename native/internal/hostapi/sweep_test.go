package hostapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// Each removal waits until all of them are under way: one after the other, the first would wait for ever.
func TestSweepRemovesSeveralAtOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w := &sweeper{server: &Server{locks: newKeyLocks()}, ctx: ctx}
	const count = 4
	var under sync.WaitGroup
	under.Add(count)
	var found []string
	for i := range count {
		found = append(found, fmt.Sprint("c", i))
	}
	all := make(chan struct{})
	go func() { under.Wait(); close(all) }()
	w.remove("container", "container", append(found, "kept"), []string{"kept"}, func(name string) error {
		under.Done()
		select {
		case <-all:
		case <-ctx.Done():
			return ctx.Err()
		}
		if name == "c1" {
			return errors.New("stuck")
		}
		return nil
	})
	if want := []Swept{{Kind: "container", Name: "c1", Message: "stuck"}}; !slices.Equal(w.report.Failed, want) {
		t.Errorf("failed: %v, want %v", w.report.Failed, want)
	}
	if len(w.report.Removed) != count-1 || w.report.Removed[0].Name != "c0" || w.report.Removed[1].Name != "c2" {
		t.Errorf("removed, in the order of finding: %v", w.report.Removed)
	}
}
