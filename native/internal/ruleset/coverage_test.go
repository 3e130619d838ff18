package ruleset

import (
	"context"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
)

func TestCoverageAwaitsTheSlotsOwnRules(t *testing.T) {
	c := NewCoverage()
	short := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		return c.Await(ctx, 1, "10.200.0.2")
	}
	rules := RuleSet{Endpoints: []Endpoint{{Slot: 1, Address: "10.200.0.2"}}}
	for name, other := range map[string]RuleSet{
		"no rules":              {},
		"another's":             {Endpoints: []Endpoint{{Slot: 1, Address: "10.200.0.3"}}},
		"of another slot":       {Endpoints: []Endpoint{{Slot: 2, Address: "10.200.0.2"}}},
		"of one that is asleep": {Sleeping: []Sleeping{{Address: "10.200.0.2"}}},
	} {
		c.Set(other.Endpoints)
		if err := short(); !hosterr.Is(err, hosterr.Busy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	waited := make(chan error, 1)
	go func() { waited <- c.Await(context.Background(), 1, "10.200.0.2") }()
	c.Set(nil)
	c.Set(rules.Endpoints)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if err := short(); err != nil {
		t.Error(err)
	}
	c.Set(nil)
	if err := short(); err == nil {
		t.Error("rules that were taken away are in force")
	}
}
