package ociruntime

import (
	"fmt"
	"sort"
)

type ociUser struct {
	UID            uint32   `json:"uid"`
	GID            uint32   `json:"gid"`
	AdditionalGids []uint32 `json:"additionalGids,omitempty"`
}

type ociCapabilities struct {
	Bounding  []string `json:"bounding"`
	Effective []string `json:"effective"`
	Permitted []string `json:"permitted"`
}

type ociProcess struct {
	Terminal        bool            `json:"terminal,omitempty"`
	ConsoleSize     *ociConsoleSize `json:"consoleSize,omitempty"`
	User            ociUser         `json:"user"`
	Args            []string        `json:"args"`
	Env             []string        `json:"env"`
	Cwd             string          `json:"cwd"`
	Capabilities    ociCapabilities `json:"capabilities"`
	Rlimits         []Rlimit        `json:"rlimits,omitempty"`
	NoNewPrivileges bool            `json:"noNewPrivileges,omitempty"`
	OOMScoreAdj     *int            `json:"oomScoreAdj,omitempty"`
}

type ociConsoleSize struct {
	Height uint `json:"height"`
	Width  uint `json:"width"`
}

type ociMount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options,omitempty"`
	// isFile: what is mounted is a file and needs one to be put on.
	isFile bool
}

type ociNamespace struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
}

type ociSyscalls struct {
	Names  []string `json:"names"`
	Action string   `json:"action"`
}

type ociSeccomp struct {
	DefaultAction string        `json:"defaultAction"`
	Syscalls      []ociSyscalls `json:"syscalls"`
}

type ociDeviceRule struct {
	Allow  bool   `json:"allow"`
	Access string `json:"access"`
}

type ociResources struct {
	Devices []ociDeviceRule `json:"devices"`
}

type ociLinux struct {
	CgroupsPath   string            `json:"cgroupsPath,omitempty"`
	Namespaces    []ociNamespace    `json:"namespaces"`
	Resources     *ociResources     `json:"resources,omitempty"`
	Seccomp       *ociSeccomp       `json:"seccomp,omitempty"`
	Sysctl        map[string]string `json:"sysctl,omitempty"`
	MaskedPaths   []string          `json:"maskedPaths,omitempty"`
	ReadonlyPaths []string          `json:"readonlyPaths,omitempty"`
}

type ociRoot struct {
	Path     string `json:"path"`
	Readonly bool   `json:"readonly"`
}

type ociSpec struct {
	OciVersion  string            `json:"ociVersion"`
	Process     ociProcess        `json:"process"`
	Root        ociRoot           `json:"root"`
	Hostname    string            `json:"hostname,omitempty"`
	Mounts      []ociMount        `json:"mounts"`
	Linux       ociLinux          `json:"linux"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
	"/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
}

var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// place is where a container's parts are, all resolved.
type place struct {
	rootfs      string
	netns       string
	cgroupsPath string
	oomScoreAdj int
	// sandboxPid is the root container's process, for a container that joins it under runc.
	sandboxPid int
	mounts     []ociMount
	// name is what the sentry knows the container by; empty: by the order of its start.
	name string
}

// buildSpec writes the configuration for a runtime; every field of it is decided here.
func buildSpec(r RunRequest, p place) ociSpec {
	spec := ociSpec{
		OciVersion: "1.0.2",
		Process:    buildProcess(r.Process),
		Root:       ociRoot{Path: p.rootfs, Readonly: r.ReadOnlyRootfs},
		Hostname:   r.Hostname,
		Mounts:     append(baseMounts(r), p.mounts...),
		Linux:      ociLinux{Namespaces: namespaces(r, p)},
	}
	spec.Process.Rlimits = r.Rlimits
	spec.Process.OOMScoreAdj = new(p.oomScoreAdj)
	if r.Runtime == Runsc {
		spec.Annotations = map[string]string{"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": runtimeID(r.ID)}
		if r.SandboxID != "" {
			spec.Annotations = map[string]string{"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": runtimeID(r.SandboxID)}
		}
		if p.name != "" {
			spec.Annotations["io.kubernetes.cri.container-name"] = p.name
		}
		if r.RestoreFrom != nil {
			spec.Annotations[waitsAnnotation] = "true"
		}
		r.Size.annotate(spec.Annotations)
		return spec
	}
	if r.SandboxID != "" {
		spec.Hostname = ""
	}
	spec.Linux.CgroupsPath = p.cgroupsPath
	spec.Linux.Sysctl = r.Sysctls
	spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = maskedPaths, readonlyPaths
	spec.Linux.Resources = &ociResources{Devices: []ociDeviceRule{{Allow: false, Access: "rwm"}}}
	spec.Linux.Seccomp = &ociSeccomp{DefaultAction: "SCMP_ACT_ALLOW", Syscalls: []ociSyscalls{{Names: seccompRefused, Action: "SCMP_ACT_ERRNO"}}}
	return spec
}

func buildProcess(p Process) ociProcess {
	set := append([]string{}, p.Capabilities...)
	sort.Strings(set)
	return ociProcess{
		User:            ociUser{UID: p.UID, GID: p.GID, AdditionalGids: p.AdditionalGIDs},
		Args:            p.Argv,
		Env:             p.Env,
		Cwd:             p.Cwd,
		Capabilities:    ociCapabilities{Bounding: set, Effective: set, Permitted: set},
		NoNewPrivileges: p.NoNewPrivileges,
	}
}

func namespaces(r RunRequest, p place) []ociNamespace {
	list := []ociNamespace{{Type: "pid"}, {Type: "mount"}}
	if r.Runtime == Runc && r.SandboxID != "" {
		for _, kind := range []struct{ oci, proc string }{{"network", "net"}, {"ipc", "ipc"}, {"uts", "uts"}} {
			list = append(list, ociNamespace{Type: kind.oci, Path: fmt.Sprintf("/proc/%d/ns/%s", p.sandboxPid, kind.proc)})
		}
		return list
	}
	return append(list, ociNamespace{Type: "ipc"}, ociNamespace{Type: "uts"}, ociNamespace{Type: "network", Path: p.netns})
}

func baseMounts(r RunRequest) []ociMount {
	shm := r.ShmBytes
	if shm == 0 {
		shm = shmBytesDefault
	}
	return []ociMount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", fmt.Sprintf("size=%d", shm)}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
}
