package hostapi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"agent-sandbox.dev/native/internal/cgroup"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/netslot"
	"agent-sandbox.dev/native/internal/ruleset"
	"golang.org/x/sys/unix"
)

// SweepRequest is what is still wanted.
type SweepRequest struct {
	Containers     []string `json:"containers"`
	Rootfs         []string `json:"rootfs"`
	WritableLayers []string `json:"writableLayers"`
	Volumes        []string `json:"volumes"`
	EmptyDirs      []string `json:"emptyDirs"`
	Files          []string `json:"files"`
	Slots          []int    `json:"slots"`
	Cgroups        []string `json:"cgroups"`
	Saved          []string `json:"saved"`
	Network        bool     `json:"network"`
}

// Swept is one thing that was removed, or could not be.
type Swept struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Message string `json:"message,omitempty"`
}

// SweepReport is what became of everything that the request did not name.
type SweepReport struct {
	Removed []Swept `json:"removed"`
	Failed  []Swept `json:"failed"`
}

// sweeper goes on after a failure: one stuck mount must not keep everything else.
type sweeper struct {
	server *Server
	ctx    context.Context
	report SweepReport
}

// Check refuses names that nothing has: a list that was cut or mixed up must not have everything removed.
func (r SweepRequest) Check() error {
	for field, ids := range map[string][]string{
		"containers": r.Containers, "rootfs": r.Rootfs, "writableLayers": r.WritableLayers, "volumes": r.Volumes, "emptyDirs": r.EmptyDirs, "files": r.Files, "cgroups": r.Cgroups, "saved": r.Saved,
	} {
		for i, id := range ids {
			if err := instance.CheckID(fmt.Sprintf("%s[%d]", field, i), id); err != nil {
				return err
			}
		}
	}
	for _, slot := range r.Slots {
		if err := netslot.CheckSlot(slot); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) sweep(ctx context.Context, r SweepRequest) (SweepReport, error) {
	if err := r.Check(); err != nil {
		return SweepReport{}, err
	}
	w := &sweeper{server: s, ctx: ctx, report: SweepReport{Removed: []Swept{}, Failed: []Swept{}}}
	w.containers(r)
	w.storage(r)
	w.kernel(r)
	return w.report, ctx.Err()
}

// atOnce bounds the removals of one kind that are under way: each waits for a sentry's end or for the kernel, and hardly computes.
const atOnce = 16

// remove deletes, under the lock of the verbs, what is not wanted, several at once. Postconditions: all of them have ended.
func (w *sweeper) remove(kind, lockKind string, found, wanted []string, remove func(string) error) {
	keep := map[string]bool{}
	for _, name := range wanted {
		keep[name] = true
	}
	unwanted := slices.DeleteFunc(slices.Clone(found), func(name string) bool { return keep[name] })
	failures := make([]error, len(unwanted))
	var under sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i, name := range unwanted {
		places <- struct{}{}
		under.Go(func() {
			defer func() { <-places }()
			failures[i] = w.removeOne(lockKind+"/"+name, name, remove)
		})
	}
	under.Wait()
	for i, name := range unwanted {
		if err := failures[i]; err != nil {
			w.report.Failed = append(w.report.Failed, Swept{Kind: kind, Name: name, Message: err.Error()})
			continue
		}
		w.report.Removed = append(w.report.Removed, Swept{Kind: kind, Name: name})
	}
}

func (w *sweeper) removeOne(lock, name string, remove func(string) error) error {
	release, err := w.server.locks.lock(w.ctx, []string{lock})
	if err != nil {
		return err
	}
	defer release()
	return remove(name)
}

func (w *sweeper) fail(kind string, err error) {
	if err != nil {
		w.report.Failed = append(w.report.Failed, Swept{Kind: kind, Message: err.Error()})
	}
}

func (w *sweeper) containers(r SweepRequest) {
	engine := w.server.host.Engine
	list, err := engine.List()
	w.fail("container", err)
	wanted := append([]string{}, r.Containers...)
	keep := map[string]bool{}
	for _, id := range r.Containers {
		keep[id] = true
	}
	var roots, joined []string
	for _, c := range list {
		// A root container lives as long as one of those that joined it is wanted.
		if keep[c.ID] {
			wanted = append(wanted, c.SandboxID)
		}
		if c.ID == c.SandboxID {
			roots = append(roots, c.ID)
		} else {
			joined = append(joined, c.ID)
		}
	}
	// With a root container go those that joined it, so these two never work on one at the same time.
	for _, found := range [][]string{roots, joined} {
		w.remove("container", "container", found, wanted, func(id string) error { return engine.Delete(w.ctx, id) })
	}
	lost, err := engine.Lost()
	w.fail("runtime", err)
	w.remove("runtime", "container", lost, nil, func(id string) error { return engine.RemoveLost(w.ctx, id) })
	if len(wanted) == 0 && !r.Network {
		w.fail("runtime", engine.RemoveRunDir())
	}
}

func (w *sweeper) rootfs(r SweepRequest) {
	roots, err := w.server.host.Rootfs.List()
	w.fail("rootfs", err)
	var found []string
	for _, root := range roots {
		found = append(found, root.ID)
	}
	w.remove("rootfs", "rootfs", found, r.Rootfs, func(id string) error { return w.server.releaseRootfs(w.ctx, id, unix.MNT_DETACH) })
}

func (w *sweeper) storage(r SweepRequest) {
	h := w.server.host
	w.rootfs(r)
	var kept, mounted []string
	layers, err := h.Rootfs.ListWritable()
	w.fail("writable-layer", err)
	for _, l := range layers {
		kept = append(kept, l.Key)
	}
	w.remove("writable-layer", "writable", kept, r.WritableLayers, h.Rootfs.DeleteWritable)
	volumes, err := h.Volumes.List()
	w.fail("volume", err)
	for _, v := range volumes {
		if v.Mounted {
			mounted = append(mounted, v.ID)
		}
	}
	w.remove("volume-mount", "volume", mounted, r.Volumes, func(id string) error { return h.Volumes.Release(id, unix.MNT_DETACH) })
	dirs, err := h.Volumes.ListEmptyDirs()
	w.fail("empty-dir", err)
	w.remove("empty-dir", "empty", dirs, r.EmptyDirs, func(id string) error { return h.Volumes.RemoveEmptyDir(id, unix.MNT_DETACH) })
	files, err := h.Volumes.ListFiles()
	w.fail("files", err)
	w.remove("files", "files", files, r.Files, h.Volumes.RemoveFiles)
	saved, err := h.Engine.SavedNames()
	w.fail("saved", err)
	w.remove("saved", "saved", saved, r.Saved, h.Engine.DiscardSaved)
}

// containerCgroups are the groups of containers that are still there: removing one would kill what is in it.
func (w *sweeper) containerCgroups() []string {
	list, err := w.server.host.Engine.List()
	w.fail("container", err)
	var names []string
	for _, c := range list {
		names = append(names, cgroup.ContainerPrefix+c.ID)
	}
	return names
}

func (w *sweeper) kernel(r SweepRequest) {
	h := w.server.host
	slots, err := h.Network.List()
	w.fail("slot", err)
	var found, wanted []string
	for _, slot := range slots {
		found = append(found, fmt.Sprint(slot.Slot))
	}
	for _, slot := range r.Slots {
		wanted = append(wanted, fmt.Sprint(slot))
	}
	w.remove("slot", "slot", found, wanted, func(name string) error {
		var slot int
		if _, err := fmt.Sscan(name, &slot); err != nil {
			return err
		}
		return h.Network.ReleaseSlot(slot)
	})
	groups, err := h.Cgroups.List()
	w.fail("cgroup", err)
	w.remove("cgroup", "cgroup", groups, append(w.containerCgroups(), r.Cgroups...), h.Cgroups.RemoveListed)
	if r.Network {
		return
	}
	if exists, err := ruleset.Exists(w.ctx, h.Instance.Table()); err != nil || exists {
		w.fail("rules", err)
		w.remove("rules", "network", []string{h.Instance.Table()}, nil, func(string) error { return h.removeRules(w.ctx) })
	}
	w.fail("network", h.Network.Remove())
	if len(r.Cgroups) == 0 {
		w.fail("cgroup", h.Cgroups.RemoveAll())
	}
}
