package ruleset

import (
	"context"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
)

// coveredWithin is many times what a transaction takes: rules that are not in force by then were never asked for.
const coveredWithin = 10 * time.Second

// Coverage knows whose rules are in force, as far as this program has installed them.
type Coverage struct {
	mu sync.Mutex
	// slots are the slots of the awake addresses.
	slots   map[string]int
	changed chan struct{}
}

// NewCoverage knows of no rules.
func NewCoverage() *Coverage { return &Coverage{slots: map[string]int{}, changed: make(chan struct{})} }

// Set is called when a whole rule set has come into force, or has been taken away.
func (c *Coverage) Set(endpoints []Endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots = make(map[string]int, len(endpoints))
	c.add(endpoints)
}

// Change is called when a change has come into force.
func (c *Coverage) Change(change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, address := range change.Removed {
		delete(c.slots, address)
	}
	for _, s := range change.Sleeping {
		delete(c.slots, s.Address)
	}
	c.add(change.Endpoints)
}

func (c *Coverage) add(endpoints []Endpoint) {
	for _, e := range endpoints {
		c.slots[e.Address] = e.Slot
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// Await returns when rules are in force for an address in a slot. Before that nothing can be sent from the slot at all; a program that starts
// later meets the rules from its first packet on.
func (c *Coverage) Await(ctx context.Context, slot int, address string) error {
	ctx, cancel := context.WithTimeout(ctx, coveredWithin)
	defer cancel()
	for {
		c.mu.Lock()
		found, covered := c.slots[address]
		changed := c.changed
		c.mu.Unlock()
		if covered && found == slot {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return hosterr.New(hosterr.Busy, "no rules are in force for %s in slot %d", address, slot)
		}
	}
}
