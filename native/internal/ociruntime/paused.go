package ociruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
)

// pauseRecord is what is on disk of a sandbox whose guest was stopped. The sentry counts stops and ends itself where a call lets it go on once too
// often, and no call of it tells the count: so each call has a record before and after it.
type pauseRecord struct {
	Step string `json:"step"`
	// Saved is the state that the sandbox was stopped for.
	Saved string `json:"saved"`
}

// The steps. In the first and the last a helper that was killed leaves open whether the sentry was called.
const (
	stepPausing    = "pausing"
	stepPaused     = "paused"
	stepContinuing = "continuing"
)

// Check refuses what is not the record of a stop.
func (p *pauseRecord) Check() error {
	if p.Step != stepPausing && p.Step != stepPaused && p.Step != stepContinuing {
		return fmt.Errorf("step: %q is not known", p.Step)
	}
	return instance.CheckID("saved", p.Saved)
}

func (e *Engine) pauseFile(id string) confine.Entry { return e.inDir(id, "paused.json") }

// readPause is nil for a sandbox that was not stopped.
func (e *Engine) readPause(id string) (*pauseRecord, error) {
	var p pauseRecord
	err := e.shelf.Read(e.pauseFile(id), &p)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return &p, err
}

// writePause need not outlast a loss of power: what it is about does not.
func (e *Engine) writePause(id, step, saved string) error {
	settled, err := durable.Begin(e.pauseFile(id), &pauseRecord{Step: step, Saved: saved})
	if err != nil {
		return err
	}
	return settled()
}

// checkGoing refuses what would wait for a guest that stands still.
func (e *Engine) checkGoing(sandboxID string) error {
	p, err := e.readPause(sandboxID)
	if err == nil && p != nil {
		err = hosterr.New(hosterr.Busy, "sandbox %s stands still for saved state %s", sandboxID, p.Saved)
	}
	return err
}

// pause stops every task of a sandbox. Preconditions: it has no record of a stop.
func (e *Engine) pause(ctx context.Context, r record, saved string) error {
	if err := e.writePause(r.ID, stepPausing, saved); err != nil {
		return err
	}
	if err := callSentry(ctx, e.controlSocket(r.ID), "containerManager.Pause", nil, nil); err != nil {
		return hosterr.New(hosterr.SaveFailed, "sandbox %s cannot be stopped: %v", r.ID, err)
	}
	return e.writePause(r.ID, stepPaused, saved)
}

// unpause lets the tasks of a sandbox go on. One that was not stopped, or has ended, is a success.
func (e *Engine) unpause(ctx context.Context, r record) error {
	p, err := e.readPause(r.ID)
	if err != nil || p == nil {
		return err
	}
	if !e.isAlive(r) {
		return e.pauseFile(r.ID).Remove()
	}
	if p.Step != stepPaused {
		still, err := e.standsStill(ctx, r)
		if err != nil {
			return err
		}
		if !still {
			return e.pauseFile(r.ID).Remove()
		}
	}
	if err := e.writePause(r.ID, stepContinuing, p.Saved); err != nil {
		return err
	}
	if err := callSentry(ctx, e.controlSocket(r.ID), "containerManager.Resume", nil, nil); err != nil && e.isAlive(r) {
		return hosterr.New(hosterr.RuntimeFailed, "sandbox %s cannot go on: %v", r.ID, err)
	}
	return e.pauseFile(r.ID).Remove()
}

// What the stack of a task's goroutine has in it, and that of one that is stopped.
const (
	taskFrame = "kernel.(*Task).run("
	stopFrame = "kernel.(*Task).doStop("
)

// standsStill asks the sentry for its goroutines, which is the one way to learn whether its tasks are stopped.
func (e *Engine) standsStill(ctx context.Context, r record) (bool, error) {
	var stacks string
	if err := callSentry(ctx, e.controlSocket(r.ID), "debug.Stacks", nil, &stacks); err != nil {
		return false, hosterr.New(hosterr.RuntimeFailed, "sandbox %s does not say whether it stands still: %v", r.ID, err)
	}
	return allStopped(stacks), nil
}

func allStopped(stacks string) bool {
	tasks := 0
	for _, goroutine := range strings.Split(stacks, "\n\n") {
		if !strings.Contains(goroutine, taskFrame) {
			continue
		}
		if !strings.Contains(goroutine, stopFrame) {
			return false
		}
		tasks++
	}
	return tasks > 0
}
