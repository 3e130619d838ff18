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

var runscState = regexp.MustCompile(`^([a-z0-9-]+)__sandbox:[a-z0-9-]+_\.state$`)

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
	for _, runtime := range []string{Runsc, Runc} {
		if !e.isKnownTo(runtime, id) || e.available(runtime) != nil {
			continue
		}
		if _, err := e.call(ctx, runtime, id, "delete", "--force", runtimeID(id)); err != nil && !hosterr.Is(err, hosterr.NotFound) {
			return err
		}
	}
	if err := e.endUnknown(ctx, id); err != nil {
		return hosterr.New(hosterr.DeadlineExceeded, "container %s: %v", id, err)
	}
	return e.removeDir(id)
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
