package ociruntime

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
)

// groupOf is the cgroup whose freezer stops a container: its own, or that of the sandbox that it joined.
func (e *Engine) groupOf(r record) string {
	if r.Cgroup != "" || r.isRoot() {
		return r.Cgroup
	}
	root, err := e.readRecord(r.SandboxID)
	if err != nil {
		return ""
	}
	return root.Cgroup
}

// letEnd thaws what is about to be killed: in the first version of cgroups nothing ends that stands still.
func (e *Engine) letEnd(r record) error {
	group := e.groupOf(r)
	if !e.cgroups.IsFrozen(group) {
		return nil
	}
	return e.cgroups.Thaw(group)
}

// refuseFrozen answers at once where a call of a sentry that stands still would wait for its thaw.
func (e *Engine) refuseFrozen(r record) error {
	if !e.cgroups.IsFrozen(e.groupOf(r)) {
		return nil
	}
	return hosterr.New(hosterr.Busy, "container %s is frozen", r.ID)
}

// letEndUnknown thaws a container that has no record: the processes of runsc name its directory, and for runc its configuration has the cgroup.
func (e *Engine) letEndUnknown(id string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && namesBundle(pid, e.containerDir(id).Path()) {
			if err := e.cgroups.ThawMember(pid); err != nil {
				return err
			}
		}
	}
	var spec ociSpec
	text, err := e.inDir(id, "config.json").ReadFile(configBytesMax)
	if err != nil || json.Unmarshal(text, &spec) != nil {
		// It was not started, or nothing is left that could tell.
		return nil
	}
	group := filepath.Base(filepath.Dir(spec.Linux.CgroupsPath))
	if instance.CheckID("cgroup", group) != nil || !e.cgroups.IsFrozen(group) {
		return nil
	}
	return e.cgroups.Thaw(group)
}
