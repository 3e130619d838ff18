// Package ociruntime drives runsc and runc: containers that outlive this program, found again from disk.
package ociruntime

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/netslot"
)

// Source says what is mounted; Kind decides which of the other fields count.
type Source struct {
	Kind      string `json:"kind"`
	ID        string `json:"id,omitempty"`
	SubPath   string `json:"subPath,omitempty"`
	Name      string `json:"name,omitempty"`
	Path      string `json:"path,omitempty"`
	SizeBytes int64  `json:"sizeBytes,omitempty"`
	Mode      uint32 `json:"mode,omitempty"`
}

// Mount is one mount of a container.
type Mount struct {
	Source   Source `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly"`
}

// Rlimit is a process limit.
type Rlimit struct {
	Type string `json:"type"`
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Process is the first process of a container or of an exec.
type Process struct {
	Argv            []string `json:"argv"`
	Env             []string `json:"env"`
	Cwd             string   `json:"cwd"`
	UID             uint32   `json:"uid"`
	GID             uint32   `json:"gid"`
	AdditionalGIDs  []uint32 `json:"additionalGids,omitempty"`
	Capabilities    []string `json:"capabilities"`
	NoNewPrivileges bool     `json:"noNewPrivileges"`
}

// RunRequest is a container to start.
type RunRequest struct {
	ID             string            `json:"id"`
	Runtime        string            `json:"runtime"`
	SandboxID      string            `json:"sandboxId,omitempty"`
	Rootfs         string            `json:"rootfs"`
	ReadOnlyRootfs bool              `json:"readOnlyRootfs,omitempty"`
	Process        Process           `json:"process"`
	Rlimits        []Rlimit          `json:"rlimits,omitempty"`
	Mounts         []Mount           `json:"mounts"`
	Hostname       string            `json:"hostname,omitempty"`
	Slot           *int              `json:"slot,omitempty"`
	Cgroup         string            `json:"cgroup,omitempty"`
	Sysctls        map[string]string `json:"sysctls,omitempty"`
	ShmBytes       int64             `json:"shmBytes,omitempty"`
	StdoutPath     string            `json:"stdoutPath,omitempty"`
	StderrPath     string            `json:"stderrPath,omitempty"`
	Waiting        bool              `json:"waiting,omitempty"`
	// Connect ends the wait of the sandbox that is joined; no program of the container runs before it has.
	Connect *ConnectRequest `json:"connect,omitempty"`
	// Size is what a sandbox says of its machine; only a root container under runsc has one.
	Size *Size `json:"size,omitempty"`
	// Handshake: the first process says "ready" on its output once it serves, and begins its program when it reads "go".
	Handshake bool `json:"handshake,omitempty"`
	// RestoreFrom starts the container from a saved state instead of from its program.
	RestoreFrom *RestoreSource `json:"restoreFrom,omitempty"`
}

// ConnectRequest is what a waiting sandbox was not told at its start.
type ConnectRequest struct {
	Slot     int    `json:"slot"`
	Address  string `json:"address"`
	Hostname string `json:"hostname"`
	// MemoryBytes is what the sandbox says of its memory from then on; 0: what it has said before.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
}

const (
	mountsMax = 256
	// The kernel's own bound on arguments and environment together is 2 MiB by default.
	argsBytesMax    = 1 << 20
	shmBytesDefault = 64 << 20
	idMax           = 1<<31 - 1
)

var (
	hostnamePattern = regexp.MustCompile(`^[a-z0-9A-Z]([a-z0-9A-Z.-]{0,62})$`)
	sysctlPattern   = regexp.MustCompile(`^net\.[a-z0-9_]+(\.[a-z0-9_]+)*$`)
	rlimitTypes     = map[string]bool{
		"RLIMIT_NOFILE": true, "RLIMIT_NPROC": true, "RLIMIT_CORE": true, "RLIMIT_FSIZE": true, "RLIMIT_STACK": true, "RLIMIT_MEMLOCK": true,
	}
	// Places the runtime itself fills; a mount over them would hide /proc/self or the device nodes.
	reservedTargets = map[string]bool{"/": true, "/proc": true, "/sys": true, "/dev": true, "/dev/pts": true}
)

func checkRuntime(name string) error {
	if name != Runsc && name != Runc {
		return hosterr.New(hosterr.InvalidArgument, "runtime: %q is not runsc or runc", name)
	}
	return nil
}

// Check refuses everything that is not exactly what the contract names.
func (r RunRequest) Check() error {
	if err := instance.CheckID("id", r.ID); err != nil {
		return err
	}
	if err := checkRuntime(r.Runtime); err != nil {
		return err
	}
	for field, id := range map[string]string{"sandboxId": r.SandboxID, "cgroup": r.Cgroup} {
		if id == "" {
			continue
		}
		if err := instance.CheckID(field, id); err != nil {
			return err
		}
	}
	if r.SandboxID == r.ID {
		return hosterr.New(hosterr.InvalidArgument, "sandboxId: %q is the container itself; leave it out for a root container", r.ID)
	}
	if err := instance.CheckID("rootfs", r.Rootfs); err != nil {
		return err
	}
	if err := r.Process.Check(r.Runtime); err != nil {
		return err
	}
	if err := r.checkSandbox(); err != nil {
		return err
	}
	if len(r.Mounts) > mountsMax {
		return hosterr.New(hosterr.InvalidArgument, "mounts: %d are more than %d", len(r.Mounts), mountsMax)
	}
	for i, m := range r.Mounts {
		if err := m.check(fmt.Sprintf("mounts[%d]", i)); err != nil {
			return err
		}
	}
	return r.checkRest()
}

func (r RunRequest) checkSandbox() error {
	if r.Waiting && (r.Runtime != Runsc || r.SandboxID != "" || r.Slot == nil || r.Hostname != "" || r.StdoutPath != "") {
		return hosterr.New(hosterr.InvalidArgument, "waiting: only a root container of runsc with a slot, no host name and no output of its own can wait")
	}
	if r.Connect != nil {
		if r.Runtime != Runsc || r.SandboxID == "" {
			return hosterr.New(hosterr.InvalidArgument, "connect: only a container that joins a sandbox of runsc can connect it")
		}
		if err := r.Connect.Check(); err != nil {
			return err
		}
	}
	if r.RestoreFrom != nil {
		if err := r.RestoreFrom.check(r); err != nil {
			return err
		}
	}
	if r.Size != nil {
		if err := r.Size.check(r); err != nil {
			return err
		}
	}
	if r.Handshake && r.StdoutPath != "" {
		return hosterr.New(hosterr.InvalidArgument, "handshake: the container's output is for us, not for %s", r.StdoutPath)
	}
	if r.Slot != nil {
		if r.SandboxID != "" {
			return hosterr.New(hosterr.InvalidArgument, "slot: a container that joins a sandbox has its network")
		}
		if err := netslot.CheckSlot(*r.Slot); err != nil {
			return err
		}
	}
	if r.Hostname != "" && !hostnamePattern.MatchString(r.Hostname) {
		return hosterr.New(hosterr.InvalidArgument, "hostname: %q is not a host name", r.Hostname)
	}
	if len(r.Sysctls) > 0 && r.Runtime == Runsc {
		return hosterr.New(hosterr.Unsupported, "sysctls: runsc has none to set")
	}
	for name, value := range r.Sysctls {
		if !sysctlPattern.MatchString(name) || strings.ContainsAny(value, "\x00\n") {
			return hosterr.New(hosterr.InvalidArgument, "sysctls: %q is not one of net.*", name)
		}
	}
	return nil
}

// Check refuses what no sandbox can be told.
func (c *ConnectRequest) Check() error {
	if !hostnamePattern.MatchString(c.Hostname) {
		return hosterr.New(hosterr.InvalidArgument, "connect.hostname: %q is not a host name", c.Hostname)
	}
	if err := netslot.CheckSlot(c.Slot); err != nil {
		return hosterr.New(hosterr.InvalidArgument, "connect.%v", err)
	}
	if c.MemoryBytes != 0 {
		if err := checkMemory("connect.memoryBytes", c.MemoryBytes); err != nil {
			return err
		}
	}
	_, err := netslot.ParseAddress("connect.address", c.Address)
	return err
}

func (r RunRequest) checkRest() error {
	for i, limit := range r.Rlimits {
		if !rlimitTypes[limit.Type] || limit.Soft > limit.Hard {
			return hosterr.New(hosterr.InvalidArgument, "rlimits[%d]: %s %d/%d is not a limit", i, limit.Type, limit.Soft, limit.Hard)
		}
	}
	if r.ShmBytes < 0 {
		return hosterr.New(hosterr.InvalidArgument, "shmBytes: %d is negative", r.ShmBytes)
	}
	for field, name := range map[string]string{"stdoutPath": r.StdoutPath, "stderrPath": r.StderrPath} {
		if name == "" {
			continue
		}
		if _, err := confine.Relative(field, name); err != nil {
			return err
		}
	}
	return nil
}

// Check refuses a process that no runtime should see.
func (p Process) Check(runtime string) error {
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return hosterr.New(hosterr.InvalidArgument, "process.argv: is empty")
	}
	total := 0
	for _, list := range [][]string{p.Argv, p.Env} {
		for _, text := range list {
			if strings.ContainsRune(text, 0) {
				return hosterr.New(hosterr.InvalidArgument, "process: %q contains a null byte", text)
			}
			total += len(text) + 1
		}
	}
	if total > argsBytesMax {
		return hosterr.New(hosterr.InvalidArgument, "process: argv and env take %d bytes, more than %d", total, argsBytesMax)
	}
	for i, line := range p.Env {
		if name, _, found := strings.Cut(line, "="); !found || name == "" {
			return hosterr.New(hosterr.InvalidArgument, "process.env[%d]: %q is not NAME=value", i, line)
		}
	}
	if _, err := confine.Absolute("process.cwd", p.Cwd); err != nil {
		return err
	}
	if p.UID > idMax || p.GID > idMax {
		return hosterr.New(hosterr.InvalidArgument, "process: uid %d or gid %d is more than %d", p.UID, p.GID, idMax)
	}
	for i, name := range p.Capabilities {
		if !capabilities[name] {
			return hosterr.New(hosterr.InvalidArgument, "process.capabilities[%d]: %q is not a capability", i, name)
		}
		if runtime == Runc && runcRefused[name] {
			return hosterr.New(hosterr.InvalidArgument, "process.capabilities[%d]: %s gives the machine away under runc", i, name)
		}
	}
	return nil
}

func (m Mount) check(field string) error {
	target, err := confine.Absolute(field+".target", m.Target)
	if err != nil {
		return err
	}
	if reservedTargets[target] || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/") {
		return hosterr.New(hosterr.InvalidArgument, "%s.target: %s is the runtime's", field, target)
	}
	s := m.Source
	switch s.Kind {
	case "volume", "empty-dir", "files":
		return instance.CheckID(field+".source.id", s.ID)
	case "program":
		return checkProgram(field+".source.name", s.Name)
	case "host-path":
		_, err := confine.Absolute(field+".source.path", s.Path)
		return err
	case "tmpfs":
		if s.SizeBytes < 4096 || s.Mode > 0o7777 {
			return hosterr.New(hosterr.InvalidArgument, "%s.source: %d bytes, mode %#o is not a tmpfs", field, s.SizeBytes, s.Mode)
		}
		return nil
	}
	return hosterr.New(hosterr.InvalidArgument, "%s.source.kind: %q is not known", field, s.Kind)
}

// cleanTarget is the target as it is put into the configuration; check has passed.
func (m Mount) cleanTarget() string { return path.Clean(m.Target) }
