package ociruntime

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
)

// record is what is on disk about a container. It is written before the runtime is called and again once the container runs.
type record struct {
	ID      string `json:"id"`
	Hash    string `json:"hash"`
	Runtime string `json:"runtime"`
	// RuntimeVersion is the build of runsc that started the sandbox and drives it; see builds.
	RuntimeVersion string    `json:"runtimeVersion,omitempty"`
	SandboxID      string    `json:"sandboxId"`
	Rootfs         string    `json:"rootfs"`
	Cgroup         string    `json:"cgroup,omitempty"`
	BootID         string    `json:"bootId"`
	Running        bool      `json:"running"`
	Pid            int       `json:"pid"`
	StartTicks     uint64    `json:"startTicks"`
	StartedAt      time.Time `json:"startedAt"`
	// Name is what the sentry knows the container by, also after it was restored into another one; empty in records of helpers that gave none.
	Name string `json:"name,omitempty"`
	// RestoredFrom is the saved state that it was started from.
	RestoredFrom string `json:"restoredFrom,omitempty"`
	// Programs are the programs of ours that are mounted into it, by target.
	Programs map[string]string `json:"programs,omitempty"`
}

// Check refuses what is not a container's record.
func (r *record) Check() error {
	return errors.Join(instance.CheckID("id", r.ID), instance.CheckID("sandboxId", r.SandboxID), instance.CheckID("rootfs", r.Rootfs), checkRuntime(r.Runtime), checkBuild(r.RuntimeVersion))
}

func (r record) isRoot() bool { return r.SandboxID == r.ID }

// Exit is how a container ended.
type Exit struct {
	ExitCode   *int      `json:"exitCode,omitempty"`
	Signal     *int      `json:"signal,omitempty"`
	FinishedAt time.Time `json:"finishedAt"`
}

// Check refuses what does not say when a container ended.
func (x *Exit) Check() error {
	if x.FinishedAt.IsZero() {
		return errors.New("finishedAt: is missing")
	}
	return nil
}

// State is a container as disk and runtime have it.
type State struct {
	ID      string `json:"id"`
	Runtime string `json:"runtime"`
	// RuntimeVersion is the build of runsc that drives it; RuntimeMissing: it is not there any more.
	RuntimeVersion string    `json:"runtimeVersion,omitempty"`
	RuntimeMissing string    `json:"runtimeMissing,omitempty"`
	SandboxID      string    `json:"sandboxId"`
	Status         string    `json:"status"`
	Pid            int       `json:"pid"`
	StartedAt      time.Time `json:"startedAt"`
	Exit           *Exit     `json:"exit,omitempty"`
	// Serving: the first process has said so to this very call.
	Serving bool `json:"serving,omitempty"`
}

func (e *Engine) containerDir(id string) confine.Entry { return e.tree.At("containers", id) }

func (e *Engine) inDir(id, name string) confine.Entry { return e.containerDir(id).In(name) }

func hashOf(r RunRequest) (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func (e *Engine) readRecord(id string) (record, error) {
	if err := instance.CheckID("id", id); err != nil {
		return record{}, err
	}
	var r record
	err := e.shelf.Read(e.inDir(id, "record.json"), &r)
	if errors.Is(err, os.ErrNotExist) {
		return record{}, hosterr.New(hosterr.NotFound, "container %s does not exist", id)
	}
	return r, err
}

// beginRecord writes a container's record; the runtime starts or the container says that it serves while the disk takes it.
func (e *Engine) beginRecord(r record) (settled func() error, err error) {
	return durable.Begin(e.inDir(r.ID, "record.json"), &r)
}

func (e *Engine) readExit(id string) (*Exit, error) {
	var x Exit
	err := e.shelf.Read(e.inDir(id, "exit.json"), &x)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNoRecord
	}
	return &x, err
}

// writeExit keeps the first answer, so that two callers never get different exit codes.
func (e *Engine) writeExit(id string, x Exit) (*Exit, error) {
	if found, err := e.readExit(id); err == nil {
		return found, nil
	}
	return &x, writeExitFile(e.containerDir(id), x)
}

func writeExitFile(dir confine.Entry, x Exit) error { return durable.Write(dir.In("exit.json"), &x) }

// exitOf turns a wait status into what callers see.
func exitOf(status uint32, at time.Time) Exit {
	x := Exit{FinishedAt: at.UTC()}
	if sig := int(status & 0x7f); sig != 0 {
		code := 128 + sig
		x.Signal, x.ExitCode = &sig, &code
		return x
	}
	code := int(status >> 8 & 0xff)
	x.ExitCode = &code
	return x
}

// List is every container that was started and not deleted.
func (e *Engine) List() ([]State, error) {
	records, err := e.records()
	if err != nil {
		return nil, err
	}
	list := []State{}
	for _, r := range records {
		s, err := e.state(r)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func (e *Engine) records() ([]record, error) {
	entries, err := e.tree.At("containers").ReadDir()
	if err != nil {
		return nil, err
	}
	var list []record
	for _, entry := range entries {
		r, err := e.readRecord(entry.Name())
		if hosterr.Is(err, hosterr.NotFound) || hosterr.Is(err, hosterr.InvalidArgument) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// UsesRootfs reports whether a container that has not ended runs on a root file system.
func (e *Engine) UsesRootfs(id string) (bool, error) {
	records, err := e.records()
	if err != nil {
		return false, err
	}
	for _, r := range records {
		if r.Rootfs == id && e.mayRun(r) {
			return true, nil
		}
	}
	return e.lostUses(id)
}

// mayRun is whether a container has not ended, one included whose start was cut off, of which the record cannot tell.
func (e *Engine) mayRun(r record) bool {
	if r.BootID != e.bootID {
		return false
	}
	return !r.Running || (alive(r.Pid, r.StartTicks) && (r.Runtime == Runc || !e.ended(r)))
}

func (e *Engine) ended(r record) bool {
	_, err := e.readExit(r.ID)
	return err == nil
}

func (e *Engine) state(r record) (State, error) {
	s := State{ID: r.ID, Runtime: r.Runtime, RuntimeVersion: r.RuntimeVersion, SandboxID: r.SandboxID, Pid: r.Pid, StartedAt: r.StartedAt, Status: "running"}
	if x, err := e.readExit(r.ID); err == nil {
		s.Status, s.Exit, s.Pid = "stopped", x, 0
		return s, nil
	} else if !errors.Is(err, errNoRecord) {
		return s, err
	}
	if !r.Running {
		s.Status = "creating"
		return s, nil
	}
	if !e.isAlive(r) {
		x, err := e.settle(r)
		s.Status, s.Exit, s.Pid = "stopped", x, 0
		return s, err
	}
	if r.Runtime == Runsc && !e.builds.has(r.RuntimeVersion) {
		s.RuntimeMissing = e.missingBuild(r).Error()
	}
	return s, nil
}

func (e *Engine) isAlive(r record) bool {
	return r.BootID == e.bootID && alive(r.Pid, r.StartTicks)
}
