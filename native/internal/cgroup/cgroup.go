// Package cgroup limits pods by cgroup v1, v2 or a mixture, and says what a machine cannot enforce.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// Request is the limits of one pod.
type Request struct {
	ID          string `json:"id"`
	CPUMillis   int64  `json:"cpuMillis,omitempty"`
	CPUShares   int64  `json:"cpuShares"`
	MemoryBytes int64  `json:"memoryBytes,omitempty"`
	Pids        int64  `json:"pids"`
}

// Report says which of the limits that were asked for are not enforced.
type Report struct {
	Unenforced []string `json:"unenforced"`
}

// Stats is a pod's use.
type Stats struct {
	CPUUsageUsec    int64 `json:"cpuUsageUsec"`
	MemoryBytes     int64 `json:"memoryBytes"`
	WorkingSetBytes int64 `json:"workingSetBytes"`
	Pids            int64 `json:"pids"`
	OOMKills        int64 `json:"oomKills"`
	// MemoryRefused is how often memory was not given because of the group's own limit, and not that of all.
	MemoryRefused int64 `json:"memoryRefused"`
	// PidsRefused is how often a process was not made because of the limit.
	PidsRefused int64 `json:"pidsRefused"`
	// Frozen: its processes stand still, or are on their way there.
	Frozen bool `json:"frozen"`
	// SharedBytes is the pod's part of pages of files, where that was asked for.
	SharedBytes *int64 `json:"sharedBytes,omitempty"`
}

const (
	// The kernel's default period; shorter ones cost more switches, longer ones make stalls visible.
	cpuPeriodUsec = 100_000
	memoryMin     = 4 << 20
	// The kernel's weights of a group for which none was set, and the greatest ones.
	sharesDefault, sharesMax = 1024, 262_144
	weightDefault, weightMax = 100, 10_000
	// How long killed processes may take to leave: the sentry's exit was measured at up to 1.8 s.
	drainMax = 10 * time.Second
	// Most groups are empty when they are removed; those of a killed sentry become so within a few milliseconds.
	drainPauseMin = time.Millisecond
	drainPauseMax = 20 * time.Millisecond
)

// ContainerPrefix starts the name of a group that runc makes for one container; no id has a dot, so that it meets no pod's.
const ContainerPrefix = "c."

// callsGroup holds calls of the runtimes that belong to no pod. It is a leaf: in v2 a group with children holds no processes itself.
const callsGroup = "calls."

// Limits in the order in which they are reported.
var limits = []string{"cpu", "memory", "pids", "freezer"}

// Hierarchy is the mounted controllers of this machine, and the instance's place in them.
type Hierarchy struct {
	inst instance.Instance
	// v1 maps a controller to its mount.
	v1 map[string]string
	// others are mounts that hold no limit of ours but that runc makes groups in.
	others []string
	// home is where this process is in each v1 mount.
	home map[string]string
	// v2 is the unified mount, or empty.
	v2            string
	v2Controllers map[string]bool
	threads       threads
	starts        starts
	parent        parent
	holds         holds
}

// Open reads what is mounted. What is made in it is within the bounds together.
func Open(inst instance.Instance, bounds Bounds) (*Hierarchy, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	h, err := read(inst, string(mountinfo), string(membership))
	if err == nil {
		h.parent.bounds = bounds
	}
	return h, err
}

// read makes a hierarchy of the kernel's texts about mounts and about this process.
func read(inst instance.Instance, mountinfo, membership string) (*Hierarchy, error) {
	h := &Hierarchy{inst: inst, v1: map[string]string{}, v2Controllers: map[string]bool{}, home: map[string]string{}, threads: threads{waiting: map[string]*thread{}}, holds: holds{files: map[string]*os.File{}}}
	for line := range strings.Lines(mountinfo) {
		h.addMount(line)
	}
	h.findHome(membership)
	if h.v2 != "" {
		text, err := os.ReadFile(filepath.Join(h.v2, "cgroup.controllers"))
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Fields(string(text)) {
			h.v2Controllers[name] = true
		}
	}
	return h, nil
}

func (h *Hierarchy) addMount(line string) {
	before, after, found := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !found || len(left) < 5 || len(right) < 3 {
		return
	}
	switch right[0] {
	case "cgroup2":
		if h.v2 == "" {
			h.v2 = left[4]
		}
	case "cgroup":
		h.others = append(h.others, left[4])
		for _, option := range strings.Split(right[2], ",") {
			switch option {
			case "cpu", "cpuacct", "memory", "pids", "freezer":
				if h.v1[option] == "" {
					h.v1[option] = left[4]
				}
			}
		}
	}
}

// findHome reads which group this process is in: a thread that went elsewhere to start a child goes back there.
func (h *Hierarchy) findHome(membership string) {
	for line := range strings.Lines(membership) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			if mount := h.v1[controller]; mount != "" {
				h.home[mount] = filepath.Join(mount, parts[2])
			}
		}
	}
}

// Mode is v1, v2 or hybrid.
func (h *Hierarchy) Mode() string {
	switch {
	case len(h.v1) == 0:
		return "v2"
	case h.v2 == "":
		return "v1"
	}
	return "hybrid"
}

// KillsSingly reports whether a cgroup that runs out of memory loses one process: the first version knows no memory.oom.group.
func (h *Hierarchy) KillsSingly() bool { return h.v1["memory"] != "" }

// Limits is what this machine can enforce.
func (h *Hierarchy) Limits() []string {
	list := []string{}
	for _, name := range limits {
		if h.has(name) {
			list = append(list, name)
		}
	}
	return list
}

func (h *Hierarchy) has(limit string) bool {
	if h.v1[limit] != "" {
		return true
	}
	// The unified hierarchy freezes without a controller.
	return h.v2 != "" && (h.v2Controllers[limit] || (limit == "freezer" && len(h.v1) == 0))
}

// dirs are a cgroup's directories: one per distinct v1 mount, and the unified one where it has controllers or is all there is.
func (h *Hierarchy) dirs(id string) []string {
	seen := map[string]bool{}
	var list []string
	for _, mount := range h.v1 {
		if !seen[mount] {
			seen[mount] = true
			list = append(list, filepath.Join(mount, h.inst.Cgroup(), id))
		}
	}
	if h.usesV2() {
		list = append(list, filepath.Join(h.v2, h.inst.Cgroup(), id))
	}
	return list
}

// allDirs are also the directories that runc made for a container of the group.
func (h *Hierarchy) allDirs(id string) []string {
	var list []string
	for _, mount := range h.others {
		list = append(list, filepath.Join(mount, h.inst.Cgroup(), id))
	}
	if h.v2 != "" {
		list = append(list, filepath.Join(h.v2, h.inst.Cgroup(), id))
	}
	return list
}

func (h *Hierarchy) usesV2() bool {
	if h.v2 == "" {
		return false
	}
	for _, name := range limits {
		if h.v2Controllers[name] {
			return true
		}
	}
	return len(h.v1) == 0
}

// Path is the cgroup's path as an OCI runtime wants it.
func (h *Hierarchy) Path(id string) string { return "/" + h.inst.Cgroup() + "/" + id }

// Ensure makes a cgroup and sets its limits; calling it again changes them.
func (h *Hierarchy) Ensure(r Request) (Report, error) {
	if err := check(r); err != nil {
		return Report{}, err
	}
	isNew := !h.Exists(r.ID)
	if err := h.ensureParent(); err != nil {
		return Report{}, err
	}
	for _, dir := range h.dirs(r.ID) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return Report{}, fmt.Errorf("cgroup: %w", err)
		}
	}
	// Only into a group without processes, so that nothing that happens to those happens to this program.
	if isNew && len(h.v1) > 0 {
		h.send(r.ID, waitMax)
	}
	report := Report{Unenforced: []string{}}
	for _, limit := range []struct {
		name   string
		wanted bool
		set    func(Request) error
	}{
		{"cpu", true, h.setCPU}, {"memory", r.MemoryBytes > 0, h.setMemory}, {"pids", true, h.setPids},
	} {
		if !h.has(limit.name) {
			if limit.wanted {
				report.Unenforced = append(report.Unenforced, limit.name)
			}
			continue
		}
		if err := limit.set(r); err != nil {
			return report, fmt.Errorf("%s limit of %s: %w", limit.name, r.ID, err)
		}
	}
	return report, nil
}

func check(r Request) error {
	if err := instance.CheckID("id", r.ID); err != nil {
		return err
	}
	switch {
	case r.CPUMillis < 0 || r.CPUMillis > 1_000_000:
		return hosterr.New(hosterr.InvalidArgument, "cpuMillis: %d is not within 0 to 1000000", r.CPUMillis)
	case r.CPUShares < 2 || r.CPUShares > sharesMax:
		return hosterr.New(hosterr.InvalidArgument, "cpuShares: %d is not within 2 to 262144", r.CPUShares)
	case r.MemoryBytes != 0 && r.MemoryBytes < memoryMin:
		return hosterr.New(hosterr.InvalidArgument, "memoryBytes: %d is less than %d", r.MemoryBytes, memoryMin)
	case r.Pids < 1 || r.Pids > 4_194_304:
		return hosterr.New(hosterr.InvalidArgument, "pids: %d is not within 1 to 4194304", r.Pids)
	}
	return nil
}

func (h *Hierarchy) enableV2() error {
	if !h.usesV2() {
		return nil
	}
	for _, dir := range []string{h.v2, filepath.Join(h.v2, h.inst.Cgroup())} {
		if err := h.delegate(dir); err != nil {
			return hosterr.New(hosterr.Unsupported, "cgroup controllers cannot be delegated below %s: %v", dir, err)
		}
	}
	return nil
}

// delegate gives the children of a group the controllers that our limits need. What a service manager has given them already is not asked for
// again: it may have kept the right to for itself.
func (h *Hierarchy) delegate(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	given := strings.Fields(string(text))
	var missing []string
	for _, name := range []string{"cpu", "memory", "pids"} {
		if h.v2Controllers[name] && !slices.Contains(given, name) {
			missing = append(missing, "+"+name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return write(dir, "cgroup.subtree_control", strings.Join(missing, " "))
}

func (h *Hierarchy) dir(controller, id string) (dir string, v2 bool) {
	if mount := h.v1[controller]; mount != "" {
		return filepath.Join(mount, h.inst.Cgroup(), id), false
	}
	return filepath.Join(h.v2, h.inst.Cgroup(), id), true
}

func (h *Hierarchy) setCPU(r Request) error {
	dir, v2 := h.dir("cpu", r.ID)
	quota := r.CPUMillis * cpuPeriodUsec / 1000
	if v2 {
		limit := "max"
		if quota > 0 {
			limit = strconv.FormatInt(quota, 10)
		}
		// The kernel's own mapping of the two scales.
		weight := 1 + (r.CPUShares-2)*9999/262142
		return errors.Join(write(dir, "cpu.weight", strconv.FormatInt(weight, 10)), write(dir, "cpu.max", fmt.Sprintf("%s %d", limit, cpuPeriodUsec)))
	}
	if quota == 0 {
		quota = -1
	}
	return errors.Join(
		write(dir, "cpu.shares", strconv.FormatInt(r.CPUShares, 10)),
		write(dir, "cpu.cfs_period_us", strconv.Itoa(cpuPeriodUsec)),
		write(dir, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)))
}

func (h *Hierarchy) setMemory(r Request) error {
	dir, v2 := h.dir("memory", r.ID)
	if v2 {
		limit := "max"
		if r.MemoryBytes > 0 {
			limit = strconv.FormatInt(r.MemoryBytes, 10)
		}
		if err := write(dir, "memory.max", limit); err != nil {
			return err
		}
		// Without swap accounting there is no such file, and nothing to limit.
		if err := write(dir, "memory.swap.max", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		// The sentry and its gofer are of no use without each other.
		return write(dir, "memory.oom.group", "1")
	}
	limit := "-1"
	if r.MemoryBytes > 0 {
		limit = strconv.FormatInt(r.MemoryBytes, 10)
	}
	return write(dir, "memory.limit_in_bytes", limit)
}

func (h *Hierarchy) setPids(r Request) error {
	dir, _ := h.dir("pids", r.ID)
	return write(dir, "pids.max", strconv.FormatInt(r.Pids, 10))
}

// Exists reports whether a cgroup was made.
func (h *Hierarchy) Exists(id string) bool {
	for _, dir := range h.dirs(id) {
		if _, err := os.Stat(dir); err != nil {
			return false
		}
	}
	return true
}

// List is the ids of all cgroups of the instance; those of another engine that has its name are not.
func (h *Hierarchy) List() ([]string, error) {
	seen := map[string]bool{}
	list := []string{}
	if isOthers, err := h.IsOthers(); isOthers || err != nil {
		return list, err
	}
	for _, dir := range h.dirs("") {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() && entry.Name() != callsGroup && !seen[entry.Name()] {
				seen[entry.Name()] = true
				list = append(list, entry.Name())
			}
		}
	}
	return list, nil
}

// Remove kills what is left in a cgroup and removes it.
func (h *Hierarchy) Remove(id string) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	return h.remove(id)
}

// RemoveListed is Remove for a name that List gave, a container's included.
func (h *Hierarchy) RemoveListed(name string) error {
	if name == "" || filepath.Base(name) != name {
		return hosterr.New(hosterr.InvalidArgument, "name: %q is not a cgroup's", name)
	}
	return h.remove(name)
}

// RemoveAll removes the instance's own cgroup, which must be empty of others. That of another engine that has its name stays.
func (h *Hierarchy) RemoveAll() error {
	if isOthers, err := h.IsOthers(); isOthers || err != nil {
		return err
	}
	return errors.Join(h.remove(""), h.own())
}

func (h *Hierarchy) remove(id string) error {
	if err := h.ownOrRefuse(); err != nil {
		return err
	}
	h.recall(id)
	deadline := time.Now().Add(drainMax)
	for pause := drainPauseMin; ; pause = min(pause*2, drainPauseMax) {
		left := false
		for _, dir := range h.allDirs(id) {
			if err := removeTree(dir); err != nil {
				left = true
			}
		}
		if !left {
			return nil
		}
		// What was killed while it stood still ends when it may go on, and runs nothing of its own before that.
		if h.IsFrozen(id) {
			if err := h.thaw(id); err != nil {
				return err
			}
		}
		if time.Now().After(deadline) {
			return hosterr.New(hosterr.Busy, "cgroup %s still has processes after %s", id, drainMax)
		}
		// Nothing announces that a v1 cgroup became empty.
		time.Sleep(pause)
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	killMembers(dir)
	err = unix.Rmdir(dir)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// write never creates: the kernel answers an attempt with a refusal, and a file that is missing must be told from one that is refused.
func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
