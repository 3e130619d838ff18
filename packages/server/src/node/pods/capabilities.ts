import type { Container } from "@agent-sandbox/api";

/** Every capability that a kernel of today has, in the order of its numbers. Exported for tests. */
export const allCapabilities = [
  "CAP_CHOWN",
  "CAP_DAC_OVERRIDE",
  "CAP_DAC_READ_SEARCH",
  "CAP_FOWNER",
  "CAP_FSETID",
  "CAP_KILL",
  "CAP_SETGID",
  "CAP_SETUID",
  "CAP_SETPCAP",
  "CAP_LINUX_IMMUTABLE",
  "CAP_NET_BIND_SERVICE",
  "CAP_NET_BROADCAST",
  "CAP_NET_ADMIN",
  "CAP_NET_RAW",
  "CAP_IPC_LOCK",
  "CAP_IPC_OWNER",
  "CAP_SYS_MODULE",
  "CAP_SYS_RAWIO",
  "CAP_SYS_CHROOT",
  "CAP_SYS_PTRACE",
  "CAP_SYS_PACCT",
  "CAP_SYS_ADMIN",
  "CAP_SYS_BOOT",
  "CAP_SYS_NICE",
  "CAP_SYS_RESOURCE",
  "CAP_SYS_TIME",
  "CAP_SYS_TTY_CONFIG",
  "CAP_MKNOD",
  "CAP_LEASE",
  "CAP_AUDIT_WRITE",
  "CAP_AUDIT_CONTROL",
  "CAP_SETFCAP",
  "CAP_MAC_OVERRIDE",
  "CAP_MAC_ADMIN",
  "CAP_SYSLOG",
  "CAP_WAKE_ALARM",
  "CAP_BLOCK_SUSPEND",
  "CAP_AUDIT_READ",
  "CAP_PERFMON",
  "CAP_BPF",
  "CAP_CHECKPOINT_RESTORE",
] as const;

/** What a container may do when nothing says otherwise: the set of the common engines, without device nodes. Exported for tests. */
export const defaultCapabilities = [
  "CAP_AUDIT_WRITE",
  "CAP_CHOWN",
  "CAP_DAC_OVERRIDE",
  "CAP_FOWNER",
  "CAP_FSETID",
  "CAP_KILL",
  "CAP_NET_BIND_SERVICE",
  "CAP_NET_RAW",
  "CAP_SETFCAP",
  "CAP_SETGID",
  "CAP_SETPCAP",
  "CAP_SETUID",
  "CAP_SYS_CHROOT",
] as const;

type Wish = NonNullable<Container["securityContext"]>["capabilities"];

/**
 * What a container may do, as the common runtimes read its wish: `ALL` in either list is taken first, then what is added by name, then what is
 * dropped by name. Inside gVisor every capability is one over the sandbox's own kernel; under runc the helper refuses those that reach the machine.
 */
export function capabilitiesOf({ add = [], drop = [] }: NonNullable<Wish> = {}): string[] {
  const isAll = (name: string): boolean => name.toUpperCase() === "ALL";
  const named = (names: readonly string[]): string[] => names.filter((name) => !isAll(name)).map(capabilityName);
  const base: readonly string[] = add.some(isAll) ? allCapabilities : defaultCapabilities;
  const dropped = new Set(named(drop));
  const granted = new Set([...(drop.some(isAll) ? [] : base), ...named(add)]);
  return [...granted].filter((name) => !dropped.has(name)).sort();
}

function capabilityName(name: string): string {
  const upper = name.toUpperCase();
  return upper.startsWith("CAP_") ? upper : `CAP_${upper}`;
}
