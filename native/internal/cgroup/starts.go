package cgroup

import (
	"context"
	"sync"

	"agent-sandbox.dev/native/internal/hosterr"
)

// starts keeps a group from being frozen while a thread of this program is in it to start a process: it would stand still with the rest, and hold the
// lock that every fork of this program takes.
type starts struct {
	mu     sync.Mutex
	groups map[string]*startGate
}

type startGate struct {
	running int
	closed  bool
	// empty is closed when the last start of a closed gate has ended.
	empty chan struct{}
}

// begin is called before a thread enters a group; the answer is to be called once it has left.
func (s *starts) begin(id string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := s.gate(id)
	if gate.closed {
		return nil, hosterr.New(hosterr.Busy, "cgroup %s is being frozen", id)
	}
	gate.running++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		gate.running--
		if gate.running == 0 && gate.closed {
			close(gate.empty)
		}
		s.forget(id, gate)
	}, nil
}

// close lets no start begin and waits for those under way; the answer lets them begin again.
func (s *starts) close(ctx context.Context, id string) (reopen func(), err error) {
	s.mu.Lock()
	gate := s.gate(id)
	if gate.closed {
		s.mu.Unlock()
		return nil, hosterr.New(hosterr.Busy, "cgroup %s is being frozen", id)
	}
	gate.closed, gate.empty = true, make(chan struct{})
	if gate.running == 0 {
		close(gate.empty)
	}
	s.mu.Unlock()
	reopen = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		gate.closed = false
		s.forget(id, gate)
	}
	select {
	case <-gate.empty:
		return reopen, nil
	case <-ctx.Done():
		reopen()
		return nil, ctx.Err()
	}
}

func (s *starts) gate(id string) *startGate {
	if s.groups == nil {
		s.groups = map[string]*startGate{}
	}
	gate := s.groups[id]
	if gate == nil {
		gate = &startGate{}
		s.groups[id] = gate
	}
	return gate
}

func (s *starts) forget(id string, gate *startGate) {
	if gate.running == 0 && !gate.closed && s.groups[id] == gate {
		delete(s.groups, id)
	}
}
