package ociruntime

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/mountfd"
)

var runscState = regexp.MustCompile(`^([a-z0-9-]+)__sandbox:([a-z0-9-]+)_\.state$`)

// Lost are the containers without a record that left something: a directory of ours, or what a runtime knows of them.
func (e *Engine) Lost() ([]string, error) {
	seen := map[string]bool{}
	var found []string
	add := func(id string) {
		if seen[id] || instance.CheckID("id", id) != nil {
			return
		}
		seen[id] = true
		if _, err := e.readRecord(id); hosterr.Is(err, hosterr.NotFound) {
			found = append(found, id)
		}
	}
	for _, place := range []struct {
		dir  confine.Entry
		idOf func(name string) string
	}{
		{e.tree.At("containers"), func(name string) string { return name }},
		{e.run.At(Runc), func(name string) string { id, _ := strings.CutSuffix(name, runtimeID("")); return id }},
		{e.run.At(Runsc), idOfState},
	} {
		entries, err := place.dir.ReadDir()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, entry := range entries {
			add(place.idOf(entry.Name()))
		}
	}
	return found, nil
}

func idOfState(name string) string {
	if match := runscState.FindStringSubmatch(name); match != nil {
		return match[1]
	}
	return ""
}

// RemoveLost ends and removes what Lost named, unless it has a record meanwhile.
func (e *Engine) RemoveLost(ctx context.Context, id string) error {
	if _, err := e.readRecord(id); !hosterr.Is(err, hosterr.NotFound) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return e.deleteLost(ctx, id)
}

// deleteLost ends a container that has no record: with it went the names of its runtime and its process, so that both runtimes are asked, and /proc.
func (e *Engine) deleteLost(ctx context.Context, id string) error {
	if e.leftNothing(id) {
		return nil
	}
	if err := e.letEndUnknown(id); err != nil {
		return err
	}
	if e.isKnownTo(Runc, id) && e.available(Runc) == nil {
		by := driver{Runc, e.config.RuncPath}
		if _, err := e.call(ctx, by, id, "delete", "--force", runtimeID(id)); err != nil && !hosterr.Is(err, hosterr.NotFound) {
			return err
		}
	}
	if r, found := e.lostAtRunsc(id); found {
		if err := e.deleteLostAtRunsc(ctx, r); err != nil {
			return err
		}
	}
	if err := e.endUnknown(ctx, id); err != nil {
		return hosterr.New(hosterr.DeadlineExceeded, "container %s: %v", id, err)
	}
	return e.removeDir(id)
}

// lostAtRunsc is what the name of runsc's state file tells of a container without a record: the sandbox it is in, and by that its build.
func (e *Engine) lostAtRunsc(id string) (record, bool) {
	states, err := e.run.At(Runsc).ReadDir()
	if err != nil {
		return record{}, false
	}
	for _, state := range states {
		match := runscState.FindStringSubmatch(state.Name())
		if match == nil || match[1] != id {
			continue
		}
		r := record{ID: id, Runtime: Runsc, SandboxID: match[2], BootID: e.bootID}
		if root, err := e.readRecord(r.SandboxID); err == nil {
			r.RuntimeVersion = root.RuntimeVersion
		}
		return r, true
	}
	return record{}, false
}

// deleteLostAtRunsc removes a container from a sandbox that has its record, by the sandbox's build. Where that is lost too, there is no telling which
// build it was: the processes are ended by what /proc says of them, the sentry first, and runsc's files go.
func (e *Engine) deleteLostAtRunsc(ctx context.Context, r record) error {
	if by, err := e.driverOf(r); err == nil {
		_, err := e.call(ctx, by, r.ID, "delete", "--force", runtimeID(r.ID))
		if hosterr.Is(err, hosterr.NotFound) {
			return nil
		}
		return err
	}
	if err := e.endUnknown(ctx, r.ID); err != nil {
		return hosterr.New(hosterr.DeadlineExceeded, "container %s: %v", r.ID, err)
	}
	return e.deleteWithoutProgram(ctx, r)
}

func (e *Engine) leftNothing(id string) bool {
	exists, err := e.containerDir(id).Exists()
	return err == nil && !exists && !e.isKnownTo(Runsc, id) && !e.isKnownTo(Runc, id)
}

// isKnownTo is whether a runtime keeps a state of a container.
func (e *Engine) isKnownTo(runtime, id string) bool {
	if runtime == Runc {
		exists, err := e.run.At(Runc, runtimeID(id)).Exists()
		return err == nil && exists
	}
	states, err := e.run.At(Runsc).ReadDir()
	return err == nil && slices.ContainsFunc(states, func(state os.DirEntry) bool { return idOfState(state.Name()) == id })
}

// lostUses is whether a container that lost its record may run on a root file system: its configuration tells which one it has.
func (e *Engine) lostUses(rootfs string) (bool, error) {
	lost, err := e.Lost()
	if err != nil {
		return false, err
	}
	for _, id := range lost {
		text, err := e.inDir(id, "config.json").ReadFile(configBytesMax)
		if errors.Is(err, os.ErrNotExist) {
			// It was not started.
			continue
		}
		var spec ociSpec
		if err != nil || json.Unmarshal(text, &spec) != nil || spec.Root.Path == e.rootfs.At(rootfs).Path() {
			return true, err
		}
	}
	return false, nil
}

// configBytesMax is more than the largest request makes a configuration of.
const configBytesMax = 64 << 20

// RemoveRunDir takes away what a runtime keeps for all containers; only when none is left.
func (e *Engine) RemoveRunDir() error {
	if err := mountfd.Remove(e.run.At(Runsc, "null-netns")); err != nil {
		return err
	}
	return errors.Join(e.run.At(Runsc).RemoveAll(), e.run.At(Runc).RemoveAll(), e.run.At("exec").RemoveAll())
}
