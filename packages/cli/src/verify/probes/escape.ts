import type { Attempt } from "../attempt.ts";
import { needsMachine } from "../ground.ts";
import type { Probe } from "../probe.ts";

const at = "prisoner";

/** Files by which a process changes or reads the kernel under it, if that is the machine's. */
const kernelSettings = [
  "/proc/sys/kernel/core_pattern",
  "/proc/sys/kernel/modprobe",
  "/proc/sys/kernel/hotplug",
  "/proc/sys/fs/binfmt_misc/register",
  "/sys/kernel/uevent_helper",
  "/sys/fs/cgroup/release_agent",
  "/sys/fs/cgroup/memory/release_agent",
  "/sys/fs/cgroup/rdma/release_agent",
];

const kernelMemory = [
  "/proc/kcore",
  "/proc/kallsyms",
  "/proc/kmsg",
  "/dev/mem",
  "/dev/kmem",
  "/dev/port",
  "/sys/kernel/debug",
];

const devices = [
  "/dev/kmsg",
  "/dev/kvm",
  "/dev/cuse",
  "/dev/loop-control",
  "/dev/sda",
  "/dev/vda",
  "/dev/nvme0n1",
  "/dev/dm-0",
];

/** Numbers of block devices that machines have: loop0, sda, vda, nvme0n1. */
const deviceNumbers = [(7 << 8) | 0, (8 << 8) | 0, (254 << 8) | 0, (259 << 8) | 0];

const runtimeSockets = [
  "/var/run/docker.sock",
  "/run/containerd/containerd.sock",
  "/run/crio/crio.sock",
  "/run/podman/podman.sock",
];

/** Capabilities that open a way out, with their numbers. */
const capabilities = {
  CAP_DAC_READ_SEARCH: 2,
  CAP_NET_ADMIN: 12,
  CAP_SYS_MODULE: 16,
  CAP_SYS_RAWIO: 17,
  CAP_SYS_PTRACE: 19,
  CAP_SYS_ADMIN: 21,
  CAP_SYS_BOOT: 22,
  CAP_SYS_TIME: 25,
  CAP_MKNOD: 27,
  CAP_MAC_ADMIN: 33,
  CAP_SYSLOG: 34,
  CAP_PERFMON: 38,
  CAP_BPF: 39,
} as const;

/** Ways out of a container that others were left by: mounts, sockets, devices, shared namespaces, the runtime's own leaks. */
export const escapeProbes: readonly Probe[] = [
  {
    id: "escape/host-files",
    tries: "find and change a file of the machine",
    plan: ({ marks, host }) => {
      if (host === undefined) return needsMachine;
      const both = (name: string): Attempt[] => [
        { at, do: "find", name },
        { at, do: "plant", name },
      ];
      return { attempts: both(marks.host.name), controls: both(marks.prisoner.name) };
    },
  },
  {
    id: "escape/runtime-sockets",
    tries: "connect to Docker, containerd, the engine's helper, a socket of the machine",
    plan: ({ marks, host }) => ({
      attempts: [...runtimeSockets, ...(host?.sockets ?? []), `@${marks.host.name}`].map((path) => ({
        at,
        do: "socket",
        path,
      })),
      controls: [{ at, do: "socket", path: `@${marks.prisoner.name}` }],
    }),
  },
  {
    id: "escape/kernel-settings",
    tries: "open core_pattern, modprobe, release_agent and the like for writing",
    plan: ({ marks }) => ({
      attempts: kernelSettings.map((path) => ({ at, do: "write", path })),
      controls: [{ at, do: "write", path: `/tmp/${marks.prisoner.name}` }],
    }),
  },
  {
    id: "escape/kernel-memory",
    tries: "read the kernel's memory, symbols and log",
    plan: ({ marks }) => ({
      attempts: kernelMemory.map((path) => ({ at, do: "read", path })),
      controls: [{ at, do: "read", path: `/tmp/${marks.prisoner.name}` }],
    }),
  },
  {
    id: "escape/mounts",
    tries: "mount a file system, and cgroups with their release_agent",
    plan: ({ host }) => {
      if (host === undefined) return needsMachine;
      return {
        attempts: ["tmpfs", "proc", "cgroup", "cgroup2"].map((name) => ({ at, do: "mount", name })),
        controls: [
          { at: "host", do: "mount", name: "tmpfs" },
          { at, do: "call", name: "getpid" },
        ],
      };
    },
  },
  {
    id: "escape/devices",
    tries: "open or make disks, /dev/kvm, /dev/cuse and other devices",
    plan: ({ host }) => {
      if (host === undefined) return needsMachine;
      return {
        attempts: [
          ...devices.map((path): Attempt => ({ at, do: "read", path })),
          ...deviceNumbers.map((number): Attempt => ({ at, do: "device", number })),
        ],
        controls: [
          { at, do: "read", path: "/dev/null" },
          { at: "host", do: "device", number: deviceNumbers[0] ?? 0 },
        ],
      };
    },
  },
  {
    id: "escape/processes",
    tries: "see a process of the machine, the engine or the runtime",
    plan: ({ marks }) => ({
      attempts: [marks.host.name, "sandbox-host", "runsc", "containerd"].map((name) => ({ at, do: "process", name })),
      controls: [{ at, do: "process", name: marks.prisoner.name }],
    }),
  },
  {
    id: "escape/namespaces",
    tries: "be in a namespace of the machine: pid, net, ipc, uts, mnt, user",
    plan: ({ host }) => {
      if (host === undefined) return needsMachine;
      const entries = Object.entries(host.namespaces);
      return {
        attempts: entries.map(([name, value]) => ({ at, do: "namespace", name, value })),
        controls: entries.map(([name]) => ({ at, do: "namespace", name, value: "own" })),
      };
    },
  },
  {
    id: "escape/shared-memory",
    tries: "attach to shared memory of the machine",
    plan: ({ marks, host }) => {
      if (host === undefined) return needsMachine;
      return {
        attempts: [{ at, do: "segment", number: marks.host.key }],
        controls: [{ at, do: "segment", number: marks.prisoner.key }],
      };
    },
  },
  {
    id: "escape/descriptors",
    tries: "leave through a directory that the runtime left open",
    plan: () => ({
      attempts: [{ at, do: "descriptors" }],
      controls: [{ at, do: "descriptors", path: "/" }],
    }),
  },
  {
    id: "escape/capabilities",
    tries: "hold a capability that opens a way out",
    plan: () => ({
      attempts: Object.entries(capabilities).map(([name, number]) => ({ at, do: "capability", name, number })),
      controls: [{ at, do: "capability", name: "CAP_CHOWN", number: 0 }],
    }),
  },
  {
    id: "escape/token",
    tries: "read a credential of the API",
    plan: ({ marks }) => ({
      attempts: ["/var/run/secrets/kubernetes.io/serviceaccount/token", "/run/secrets/kubernetes.io"].map((path) => ({
        at,
        do: "read",
        path,
      })),
      controls: [{ at, do: "read", path: `/tmp/${marks.prisoner.name}` }],
    }),
  },
];
