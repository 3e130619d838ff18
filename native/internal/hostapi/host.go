package hostapi

import (
	"runtime"
	"strings"
	"sync"

	"agent-sandbox.dev/native/internal/archive"
	"agent-sandbox.dev/native/internal/cgroup"
	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/heldconn"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/layer"
	"agent-sandbox.dev/native/internal/netslot"
	"agent-sandbox.dev/native/internal/ociruntime"
	"agent-sandbox.dev/native/internal/rootfs"
	"agent-sandbox.dev/native/internal/ruleset"
	"agent-sandbox.dev/native/internal/volume"
	"golang.org/x/sys/unix"
)

// Host is everything the verbs act on.
type Host struct {
	Version  string
	Instance instance.Instance
	NodeUID  uint32
	// RouterUID opens connections to sandboxes, as the node does.
	RouterUID uint32
	// Shelf has the records that could not be read.
	Shelf   *durable.Shelf
	Layers  *layer.Store
	Rootfs  *rootfs.Store
	Volumes *volume.Store
	Network *netslot.Network
	Cgroups *cgroup.Hierarchy
	Engine  *ociruntime.Engine
	Held    *heldconn.Holder
	Archive *archive.Store

	diskFloorBytes int64

	// rules makes one transaction at a time.
	rules sync.Mutex
	// table is what the last one left in force and knows who sleeps and is held, coverage what it said of awake sandboxes.
	table    ruleset.Table
	coverage *ruleset.Coverage
}

// Limits is what the machine keeps for itself, or leaves to all sandboxes together.
type Limits struct {
	Sandboxes cgroup.Bounds
	// DiskFloorBytes: with less than this free, nothing is made that takes room on the disk.
	DiskFloorBytes int64
}

// Open opens an instance's state.
func Open(inst instance.Instance, version string, config ociruntime.Config, limits Limits) (*Host, error) {
	tree, run, err := openTrees(inst)
	if err != nil {
		return nil, err
	}
	h := &Host{diskFloorBytes: limits.DiskFloorBytes,
		Version: version, Instance: inst, NodeUID: uint32(config.NodeUID), RouterUID: uint32(config.RouterUID), coverage: ruleset.NewCoverage()}
	h.Network, h.Held = netslot.New(inst, run, h.table.IsAsleep), heldconn.New(h.table.Diverts)
	if h.Volumes, err = volume.NewStore(tree, config.NodeGID); err != nil {
		return nil, err
	}
	if h.Shelf, err = durable.NewShelf(tree); err != nil {
		return nil, err
	}
	node := confine.Caller{Dir: inst.NodeDir(), UID: config.NodeUID, GID: config.NodeGID}
	if h.Layers, err = layer.NewStore(tree, node, h.Shelf); err != nil {
		return nil, err
	}
	if h.Rootfs, err = rootfs.NewStore(tree, h.Layers, h.Shelf); err != nil {
		return nil, err
	}
	if h.Cgroups, err = cgroup.Open(inst, limits.Sandboxes); err != nil {
		return nil, err
	}
	parts := ociruntime.Parts{
		Tree: tree, Run: run, Rootfs: h.Rootfs, Volumes: h.Volumes, Cgroups: h.Cgroups, Network: h.Network, Rules: h.coverage, Shelf: h.Shelf, Node: node,
	}
	if h.Engine, err = ociruntime.NewEngine(inst, config, parts); err != nil {
		return nil, err
	}
	h.Rootfs.IsUsed = h.Engine.UsesRootfs
	h.Engine.Room = h.checkRoomFor
	h.Archive, err = archive.NewStore(tree, node, h.checkRoomFor)
	return h, err
}

// openTrees opens the two directories that everything of the helper's is below; they stay open as long as it runs.
func openTrees(inst instance.Instance) (tree, run *confine.Tree, err error) {
	// Every role has a directory of its own below these; it must be able to pass through, not to list.
	for _, dir := range []string{inst.DataDir, inst.RunDir} {
		if err := confine.RootDir(dir, 0o711, 0); err != nil {
			return nil, nil, err
		}
	}
	if tree, err = confine.OpenTree(inst.Host()); err != nil {
		return nil, nil, err
	}
	if run, err = confine.OpenTree(inst.RunDir); err != nil {
		return nil, nil, err
	}
	return tree, run, run.At(instance.NamespaceDir).EnsureRootDir(0o711, 0)
}

// Info is what the helper says about itself and its machine.
type Info struct {
	Version       string                `json:"version"`
	Instance      string                `json:"instance"`
	DataDir       string                `json:"dataDir"`
	Runtimes      []ociruntime.Features `json:"runtimes"`
	CgroupMode    string                `json:"cgroupMode"`
	CgroupLimits  []string              `json:"cgroupLimits"`
	CPUs          int                   `json:"cpus"`
	MemoryBytes   int64                 `json:"memoryBytes"`
	DiskBytes     int64                 `json:"diskBytes"`
	DiskFreeBytes int64                 `json:"diskFreeBytes"`
	Kernel        string                `json:"kernel"`
	HostUsrDigest string                `json:"hostUsrDigest"`
	// RuntimeVersions are the builds of runsc that are installed or that a sandbox needs.
	RuntimeVersions []ociruntime.BuildUse `json:"runtimeVersions"`
	// BadRecords are the records that could not be read; they lie in `host/bad` until an operator removes them.
	BadRecords []string `json:"badRecords"`
	// CgroupsInUse: an engine in another root or container has the cgroups of this instance's name.
	CgroupsInUse bool `json:"cgroupsInUse"`
}

func (h *Host) info() (Info, error) {
	var system unix.Sysinfo_t
	var disk unix.Statfs_t
	var name unix.Utsname
	for _, err := range []error{unix.Sysinfo(&system), unix.Statfs(h.Instance.DataDir, &disk), unix.Uname(&name)} {
		if err != nil {
			return Info{}, err
		}
	}
	digest, err := h.Rootfs.HostDigest()
	if err != nil {
		return Info{}, err
	}
	builds, err := h.Engine.BuildsInUse()
	if err != nil {
		return Info{}, err
	}
	isInUse, err := h.Cgroups.IsOthers()
	if err != nil {
		return Info{}, err
	}
	bad, err := h.Shelf.Names()
	return Info{
		Version: h.Version, Instance: h.Instance.ID, DataDir: h.Instance.DataDir, Runtimes: h.Engine.Features(),
		CgroupMode: h.Cgroups.Mode(), CgroupLimits: h.Cgroups.Limits(), CPUs: runtime.NumCPU(),
		MemoryBytes: int64(system.Totalram) * int64(system.Unit),
		DiskBytes:   int64(disk.Blocks) * disk.Bsize, DiskFreeBytes: int64(disk.Bavail) * disk.Bsize,
		Kernel: strings.TrimRight(string(name.Release[:]), "\x00"), HostUsrDigest: digest, RuntimeVersions: builds, BadRecords: bad, CgroupsInUse: isInUse,
	}, err
}
