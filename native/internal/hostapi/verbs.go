package hostapi

import (
	"context"
	"fmt"
	"time"

	"agent-sandbox.dev/native/internal/archive"
	"agent-sandbox.dev/native/internal/cgroup"
	"agent-sandbox.dev/native/internal/heldconn"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/layer"
	"agent-sandbox.dev/native/internal/netslot"
	"agent-sandbox.dev/native/internal/ociruntime"
	"agent-sandbox.dev/native/internal/rootfs"
	"agent-sandbox.dev/native/internal/ruleset"
	"agent-sandbox.dev/native/internal/volume"
)

// Deadlines: what only touches the kernel, what writes to disk, what moves gigabytes, and what waits for others (its own bound plus a margin).
const (
	quick   = 30 * time.Second
	slow    = 2 * time.Minute
	bulk    = 30 * time.Minute
	waiting = 11 * time.Minute
)

type empty struct{}

type byID struct {
	ID string `json:"id"`
}

type statsRequest struct {
	ID string `json:"id"`
	// Shared asks for the part of pages of files too, which takes the kernel longer than all the rest.
	Shared bool `json:"shared,omitempty"`
}

type byKey struct {
	Key string `json:"key"`
}

type bySlot struct {
	Slot int `json:"slot"`
	MTU  int `json:"mtu,omitempty"`
}

type assignRequest struct {
	Slot    int    `json:"slot"`
	Address string `json:"address"`
}

type byAddress struct {
	Address string `json:"address"`
}

type waitRequest struct {
	After  uint64 `json:"after"`
	ID     string `json:"id,omitempty"`
	WaitMs int64  `json:"waitMs"`
}

type cloneRequest struct {
	// Kind is `writable`, `volume` or `empty-dir`.
	Kind       string `json:"kind"`
	From       string `json:"from"`
	To         string `json:"to"`
	PauseMaxMs int64  `json:"pauseMaxMs"`
}

type copySavedRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type killRequest struct {
	ID     string `json:"id"`
	Signal string `json:"signal"`
	All    bool   `json:"all,omitempty"`
}

func none[R any](R) []string { return nil }

func on[R any](kind string, id func(R) string) func(R) []string {
	return func(r R) []string { return []string{kind + "/" + id(r)} }
}

func onID(kind string) func(byID) []string {
	return on(kind, func(r byID) string { return r.ID })
}

// done adapts a function without an answer.
func done[R any](run func(context.Context, R) error) func(context.Context, R) (nothing, error) {
	return func(ctx context.Context, r R) (nothing, error) { return nothing{}, run(ctx, r) }
}

func (s *Server) register() {
	s.registerStorage()
	s.registerNetwork()
	s.registerContainers()
	s.registerArchive()
	define(s, "info", quick, none[empty], func(context.Context, empty) (Info, error) { return s.host.info() })
	define(s, "sweep", bulk, func(SweepRequest) []string { return []string{"sweep"} }, s.sweep)
}

func (s *Server) registerStorage() {
	h := s.host
	define(s, "unpackLayer", bulk, on("layer", func(r layer.Request) string { return r.DiffID }), inRoom(h, h.Layers.Unpack))
	define(s, "listLayers", quick, none[empty], func(context.Context, empty) ([]layer.Layer, error) { return h.Layers.List() })
	define(s, "removeLayer", slow, onID("layer"), done(func(_ context.Context, r byID) error { return h.removeLayer(r.ID) }))
	define(s, "prepareRootfs", slow, rootfsKeys, inRoom(h, h.Rootfs.Prepare))
	define(s, "listRootfs", quick, none[empty], func(context.Context, empty) ([]rootfs.Rootfs, error) { return h.Rootfs.ListUsed() })
	define(s, "releaseRootfs", slow, onID("rootfs"), done(func(ctx context.Context, r byID) error { return s.releaseRootfs(ctx, r.ID, 0) }))
	define(s, "listWritableLayers", quick, none[empty], func(context.Context, empty) ([]rootfs.Writable, error) { return h.Rootfs.ListWritable() })
	define(s, "deleteWritableLayer", slow, on("writable", func(r byKey) string { return r.Key }), done(func(_ context.Context, r byKey) error { return h.Rootfs.DeleteWritable(r.Key) }))
	define(s, "cloneImage", bulk, cloneKeys, inRoom(h, h.cloneImage))
	define(s, "ensureVolume", slow, on("volume", func(r volume.Request) string { return r.ID }), inRoom(h, h.Volumes.Ensure))
	define(s, "listVolumes", quick, none[empty], func(context.Context, empty) ([]volume.Volume, error) { return h.Volumes.List() })
	define(s, "releaseVolume", slow, onID("volume"), done(func(_ context.Context, r byID) error { return h.Volumes.Release(r.ID, 0) }))
	define(s, "deleteVolume", slow, onID("volume"), done(func(_ context.Context, r byID) error { return h.Volumes.Delete(r.ID) }))
	define(s, "ensureEmptyDir", slow, on("empty", func(r volume.EmptyDirRequest) string { return r.ID }), inRoom(h, done(h.Volumes.EnsureEmptyDir)))
	define(s, "listEmptyDirs", quick, none[empty], func(context.Context, empty) ([]volume.Volume, error) { return h.Volumes.EmptyDirUse() })
	define(s, "removeEmptyDir", slow, onID("empty"), done(func(_ context.Context, r byID) error { return h.Volumes.RemoveEmptyDir(r.ID, 0) }))
	define(s, "writeFiles", quick, on("files", func(r volume.FilesRequest) string { return r.ID }), done(func(_ context.Context, r volume.FilesRequest) error { return h.Volumes.WriteFiles(r) }))
	define(s, "removeFiles", quick, onID("files"), done(func(_ context.Context, r byID) error { return h.Volumes.RemoveFiles(r.ID) }))
}

// rootfsKeys also locks the layers, so that none is removed between the check and the mount.
func rootfsKeys(r rootfs.Request) []string {
	keys := []string{"rootfs/" + r.ID}
	if r.WritableFrom != "" {
		keys = append(keys, "rootfs/"+r.WritableFrom)
	}
	if r.KeepKey != "" {
		keys = append(keys, "writable/"+r.KeepKey)
	}
	for _, id := range r.Layers {
		keys = append(keys, "layer/"+id)
	}
	return keys
}

// releaseRootfs also locks the kept writable layer, which is unmounted: an export holds that lock while it copies the layer. Which layer it is
// the record tells. Preconditions: the caller holds the root file system's own lock, which comes before the layer's in the order of all locks.
func (s *Server) releaseRootfs(ctx context.Context, id string, flags int) error {
	key, err := s.host.Rootfs.KeyOf(id)
	if err != nil {
		return err
	}
	if key != "" {
		release, err := s.locks.lock(ctx, []string{"writable/" + key})
		if err != nil {
			return err
		}
		defer release()
	}
	return s.host.Rootfs.Release(id, flags)
}

func (s *Server) registerNetwork() {
	h := s.host
	define(s, "ensureNetwork", quick, func(netslot.NetworkRequest) []string { return []string{"network"} }, done(func(_ context.Context, r netslot.NetworkRequest) error { return h.Network.Ensure(r) }))
	define(s, "ensureSlot", quick, slotKey[bySlot](func(r bySlot) int { return r.Slot }), func(_ context.Context, r bySlot) (netslot.Slot, error) { return h.Network.EnsureSlot(r.Slot, r.MTU) })
	define(s, "assignSlot", quick, slotKey(func(r assignRequest) int { return r.Slot }), func(_ context.Context, r assignRequest) (netslot.Slot, error) {
		return h.Network.Assign(r.Slot, r.Address)
	})
	define(s, "releaseSlot", quick, slotKey(func(r bySlot) int { return r.Slot }), done(func(_ context.Context, r bySlot) error { return h.Network.ReleaseSlot(r.Slot) }))
	define(s, "listSlots", quick, none[empty], func(context.Context, empty) ([]netslot.Slot, error) { return h.Network.List() })
	define(s, "applyRules", quick, none[ruleset.RuleSet], done(h.applyRules))
	define(s, "changeRules", quick, none[ruleset.Change], done(h.changeRules))
	define(s, "waitHeld", waiting, none[waitRequest], func(ctx context.Context, r waitRequest) (heldconn.Arrivals, error) {
		return h.Held.Wait(ctx, r.After, time.Duration(r.WaitMs)*time.Millisecond)
	})
	define(s, "handOver", quick, none[byAddress], func(_ context.Context, r byAddress) (map[string]int, error) {
		address, err := netslot.ParseAddress("address", r.Address)
		if err != nil {
			return nil, err
		}
		return map[string]int{"connections": h.Held.HandOver(address)}, nil
	})
	define(s, "dropHeld", quick, none[byAddress], done(func(_ context.Context, r byAddress) error {
		address, err := netslot.ParseAddress("address", r.Address)
		if err == nil {
			h.Held.Drop(address)
		}
		return err
	}))
	define(s, "ensureCgroup", quick, on("cgroup", func(r cgroup.Request) string { return r.ID }), func(_ context.Context, r cgroup.Request) (cgroup.Report, error) { return h.Cgroups.Ensure(r) })
	define(s, "cgroupStats", quick, none[statsRequest], h.cgroupStats)
	// Neither waits for the other: a thaw is not held up by what a freeze does after the processes stand still.
	define(s, "freezeCgroup", quick, onID("freeze"), func(ctx context.Context, r byID) (cgroup.Frozen, error) { return h.Cgroups.Freeze(ctx, r.ID) })
	define(s, "thawCgroup", quick, none[byID], done(func(_ context.Context, r byID) error { return h.Cgroups.Thaw(r.ID) }))
	define(s, "removeCgroup", quick, onID("cgroup"), done(func(_ context.Context, r byID) error { return h.Cgroups.Remove(r.ID) }))
}

func (h *Host) cgroupStats(_ context.Context, r statsRequest) (cgroup.Stats, error) {
	stats, err := h.Cgroups.Stats(r.ID)
	if err != nil || !r.Shared {
		return stats, err
	}
	shared := h.Cgroups.SharedBytes(r.ID)
	stats.SharedBytes = &shared
	return stats, nil
}

func slotKey[R any](slot func(R) int) func(R) []string {
	return func(r R) []string { return []string{fmt.Sprintf("slot/%d", slot(r))} }
}

// runKeys also locks the sandbox that is connected on the way, or restored, and the state that it is restored from.
func runKeys(r ociruntime.RunRequest) []string {
	keys := []string{"container/" + r.ID}
	if r.Connect != nil {
		keys = append(keys, "container/"+r.SandboxID, fmt.Sprintf("slot/%d", r.Connect.Slot))
	}
	if r.RestoreFrom != nil {
		keys = append(keys, "saved/"+r.RestoreFrom.Saved)
	}
	if r.RestoreFrom != nil && r.SandboxID != "" {
		keys = append(keys, "container/"+r.SandboxID)
	}
	return keys
}

func (s *Server) registerContainers() {
	e := s.host.Engine
	define(s, "runContainer", slow, runKeys, e.Run)
	define(s, "listContainers", quick, none[empty], func(context.Context, empty) ([]ociruntime.State, error) { return e.List() })
	define(s, "waitContainer", waiting, none[waitRequest], func(ctx context.Context, r waitRequest) (map[string]any, error) {
		exit, err := e.Wait(ctx, r.ID, time.Duration(r.WaitMs)*time.Millisecond)
		if exit == nil {
			return map[string]any{}, err
		}
		return map[string]any{"exit": exit}, err
	})
	define(s, "killContainer", quick, none[killRequest], done(func(ctx context.Context, r killRequest) error { return e.Kill(ctx, r.ID, r.Signal, r.All) }))
	define(s, "saveSandbox", bulk, func(r ociruntime.SaveRequest) []string { return []string{"container/" + r.ID, "saved/" + r.Saved} }, e.Save)
	define(s, "continueSandbox", slow, func(r ociruntime.ContinueRequest) []string { return []string{"container/" + r.ID, "saved/" + r.Saved} }, done(e.Continue))
	define(s, "listSaved", quick, none[empty], func(context.Context, empty) ([]ociruntime.Saved, error) { return e.ListSaved() })
	define(s, "copySaved", slow, func(r copySavedRequest) []string { return []string{"saved/" + r.From, "saved/" + r.To} }, func(_ context.Context, r copySavedRequest) (ociruntime.Saved, error) {
		return e.CopySaved(r.From, r.To)
	})
	define(s, "discardSaved", slow, onID("saved"), done(func(_ context.Context, r byID) error { return e.DiscardSaved(r.ID) }))
	define(s, "waitRestored", waiting, none[waitRequest], func(ctx context.Context, r waitRequest) (map[string]bool, error) {
		restored, err := e.WaitRestored(ctx, r.ID, time.Duration(r.WaitMs)*time.Millisecond)
		if !restored {
			return map[string]bool{}, err
		}
		return map[string]bool{"restored": true}, err
	})
	define(s, "deleteContainer", slow, onID("container"), done(func(ctx context.Context, r byID) error { return e.Delete(ctx, r.ID) }))
}

func (s *Server) registerArchive() {
	h := s.host
	define(s, "packArchive", bulk, func(r packRequest) []string { return archiveKeys(r.ID, r.Files) }, h.packArchive)
	define(s, "sealArchive", slow, on("archive", func(r sealRequest) string { return r.ID }), func(_ context.Context, r sealRequest) (sealedEntry, error) {
		sealed, err := h.Archive.Seal(r.ID, r.Entry)
		return sealedEntry{ID: r.ID, Sealed: string(sealed)}, err
	})
	define(s, "openArchive", quick, none[sealedEntry], func(_ context.Context, r sealedEntry) (archive.Index, error) {
		return h.Archive.Open(r.ID, []byte(r.Sealed))
	})
	define(s, "unpackArchive", bulk, func(r unpackRequest) []string { return archiveKeys(r.ID, r.Files) }, h.unpackArchive)
	define(s, "forgetArchive", slow, onID("archive"), done(func(_ context.Context, r byID) error { return h.Archive.Forget(r.ID) }))
}

func (h *Host) removeLayer(id string) error {
	if err := layer.CheckDigest("id", id); err != nil {
		return err
	}
	used, err := h.Rootfs.UsesLayer(id)
	if err != nil {
		return err
	}
	if used {
		return hosterr.New(hosterr.Busy, "layer %s is under a root file system", id)
	}
	return h.Layers.Remove(id)
}
