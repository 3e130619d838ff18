package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
)

// Stats reads a pod's use.
func (h *Hierarchy) Stats(id string) (Stats, error) {
	if err := instance.CheckID("id", id); err != nil {
		return Stats{}, err
	}
	if !h.Exists(id) {
		return Stats{}, hosterr.New(hosterr.NotFound, "cgroup %s does not exist", id)
	}
	s := Stats{CPUUsageUsec: h.cpuUsage(id), Frozen: h.IsFrozen(id)}
	dir, v2 := h.dir("memory", id)
	if v2 {
		s.MemoryBytes = number(dir, "memory.current")
		s.WorkingSetBytes = max(0, s.MemoryBytes-field(dir, "memory.stat", "inactive_file"))
		s.OOMKills = field(dir, "memory.events", "oom_kill")
		s.MemoryRefused = field(dir, "memory.events", "max")
	} else {
		s.MemoryBytes = number(dir, "memory.usage_in_bytes")
		s.WorkingSetBytes = max(0, s.MemoryBytes-field(dir, "memory.stat", "total_inactive_file"))
		s.OOMKills = oomKills(dir)
		s.MemoryRefused = number(dir, "memory.failcnt")
	}
	dir, _ = h.dir("pids", id)
	s.Pids = number(dir, "pids.current")
	s.PidsRefused = field(dir, "pids.events", "max")
	return s, nil
}

// SharedBytes is a pod's part of the pages of files that its processes map: a page that n processes map counts as an n-th for each of them. The kernel
// walks the tables of all their pages for it: some milliseconds for a sandbox of a gigabyte.
func (h *Hierarchy) SharedBytes(id string) int64 {
	dir, _ := h.dir("memory", id)
	var total int64
	for _, pid := range membersBelow(dir) {
		// A process that ended meanwhile maps nothing.
		total += field(filepath.Join("/proc", strconv.Itoa(pid)), "smaps_rollup", "Pss_File:") << 10
	}
	return total
}

// oomKills adds up a v1 group and those that runc made below it: the kernel counts each kill only where the process was.
func oomKills(dir string) int64 {
	total := field(dir, "memory.oom_control", "oom_kill")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return total
	}
	for _, entry := range entries {
		if entry.IsDir() {
			total += oomKills(filepath.Join(dir, entry.Name()))
		}
	}
	return total
}

func (h *Hierarchy) cpuUsage(id string) int64 {
	if mount := h.v1["cpuacct"]; mount != "" {
		return number(filepath.Join(mount, h.inst.Cgroup(), id), "cpuacct.usage") / 1000
	}
	return field(filepath.Join(h.v2, h.inst.Cgroup(), id), "cpu.stat", "usage_usec")
}

// number reads a file with one number; a controller that is missing counts nothing.
func number(dir, file string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	value, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return value
}

// field reads one line of a file of names and numbers; those below /proc have a unit behind.
func field(dir, file, name string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		key, value, found := strings.Cut(line, " ")
		if !found || key != name {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, " kB")), 10, 64); err == nil {
			return n
		}
	}
	return 0
}
