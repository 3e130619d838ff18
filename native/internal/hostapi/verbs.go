package hostapi

import (
	"context"
	"fmt"
	"time"

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
	ID     string `json:"id,omitempty"`
	WaitMs int64  `json:"waitMs"`
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
	define(s, "info", quick, none[empty], func(context.Context, empty) (Info, error) { return s.host.info() })
	define(s, "sweep", bulk, func(SweepRequest) []string { return []string{"sweep"} }, s.sweep)
}

func (s *Server) registerStorage() {
	h := s.host
	define(s, "unpackLayer", bulk, on("layer", func(r layer.Request) string { return r.DiffID }), h.Layers.Unpack)
	define(s, "listLayers", quick, none[empty], func(context.Context, empty) ([]layer.Layer, error) { return h.Layers.List() })
	define(s, "removeLayer", slow, onID("layer"), done(func(_ context.Context, r byID) error { return h.removeLayer(r.ID) }))
	define(s, "prepareRootfs", slow, rootfsKeys, h.Rootfs.Prepare)
	define(s, "listRootfs", quick, none[empty], func(context.Context, empty) ([]rootfs.Rootfs, error) { return h.Rootfs.ListUsed() })
	define(s, "releaseRootfs", slow, onID("rootfs"), done(func(_ context.Context, r byID) error { return h.Rootfs.Release(r.ID, 0) }))
	define(s, "listWritableLayers", quick, none[empty], func(context.Context, empty) ([]rootfs.Writable, error) { return h.Rootfs.ListWritable() })
	define(s, "deleteWritableLayer", slow, on("writable", func(r byKey) string { return r.Key }), done(func(_ context.Context, r byKey) error { return h.Rootfs.DeleteWritable(r.Key) }))
	define(s, "ensureVolume", slow, on("volume", func(r volume.Request) string { return r.ID }), h.Volumes.Ensure)
	define(s, "listVolumes", quick, none[empty], func(context.Context, empty) ([]volume.Volume, error) { return h.Volumes.List() })
	define(s, "releaseVolume", slow, onID("volume"), done(func(_ context.Context, r byID) error { return h.Volumes.Release(r.ID, 0) }))
	define(s, "deleteVolume", slow, onID("volume"), done(func(_ context.Context, r byID) error { return h.Volumes.Delete(r.ID) }))
	define(s, "ensureEmptyDir", slow, on("empty", func(r volume.EmptyDirRequest) string { return r.ID }), done(h.Volumes.EnsureEmptyDir))
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
	define(s, "waitHeld", waiting, none[waitRequest], func(ctx context.Context, r waitRequest) ([]heldconn.Connection, error) {
		return h.Held.Wait(ctx, time.Duration(r.WaitMs)*time.Millisecond)
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
	define(s, "cgroupStats", quick, none[byID], func(_ context.Context, r byID) (cgroup.Stats, error) { return h.Cgroups.Stats(r.ID) })
	define(s, "removeCgroup", quick, onID("cgroup"), done(func(_ context.Context, r byID) error { return h.Cgroups.Remove(r.ID) }))
}

func slotKey[R any](slot func(R) int) func(R) []string {
	return func(r R) []string { return []string{fmt.Sprintf("slot/%d", slot(r))} }
}

// runKeys also locks the sandbox that is connected on the way.
func runKeys(r ociruntime.RunRequest) []string {
	keys := []string{"container/" + r.ID}
	if r.Connect != nil {
		keys = append(keys, "container/"+r.SandboxID, fmt.Sprintf("slot/%d", r.Connect.Slot))
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
	define(s, "deleteContainer", slow, onID("container"), done(func(ctx context.Context, r byID) error { return e.Delete(ctx, r.ID) }))
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
