import type { RestoreSource } from "./saved-state.ts";

/** The runtimes a container can run under. */
export type RuntimeName = "runsc" | "runc";

/** What may be mounted into a container. Everything is named, nothing is a free path, except `hostPath`, which the operator's allow-list confines. */
export type MountSource =
  | { readonly kind: "volume"; readonly id: string; readonly subPath?: string }
  | { readonly kind: "empty-dir"; readonly id: string; readonly subPath?: string }
  | { readonly kind: "files"; readonly id: string; readonly subPath?: string }
  /** A program that root put into `bin` of the data directory, by the name that `keepProgram` gave it: always read-only. */
  | { readonly kind: "program"; readonly name: string }
  | { readonly kind: "host-path"; readonly path: string }
  | { readonly kind: "tmpfs"; readonly sizeBytes: number; readonly mode?: number };

/** One mount of a container. */
export interface ContainerMount {
  readonly source: MountSource;
  /** Absolute path inside. */
  readonly target: string;
  readonly readOnly: boolean;
}

/** A process limit, as `setrlimit`. */
export interface ContainerRlimit {
  readonly type: "RLIMIT_NOFILE" | "RLIMIT_NPROC" | "RLIMIT_CORE" | "RLIMIT_FSIZE" | "RLIMIT_STACK" | "RLIMIT_MEMLOCK";
  readonly soft: number;
  readonly hard: number;
}

/** The first process of a container, and of an exec. */
export interface ContainerProcess {
  readonly argv: readonly string[];
  /** `NAME=value` lines. */
  readonly env: readonly string[];
  readonly cwd: string;
  readonly uid: number;
  readonly gid: number;
  readonly additionalGids?: readonly number[];
  /** Names with CAP_; the set is bounding, effective and permitted. Never CAP_SYS_ADMIN, SYS_MODULE, SYS_RAWIO, SYS_BOOT, SYS_TIME, MKNOD under runc. */
  readonly capabilities: readonly string[];
  readonly noNewPrivileges: boolean;
}

/** A container to start. */
export interface RunContainerRequest {
  /** `idPattern`; unique in the instance over both runtimes. */
  readonly id: string;
  readonly runtime: RuntimeName;
  /** The sandbox this container joins: the id of a running root container. Absent: this is a root container and makes the sandbox. */
  readonly sandboxId?: string;
  /** A prepared root file system's id. */
  readonly rootfs: string;
  readonly readOnlyRootfs?: boolean;
  readonly process: ContainerProcess;
  readonly rlimits?: readonly ContainerRlimit[];
  readonly mounts: readonly ContainerMount[];
  /** Root containers only; joiners share it. */
  readonly hostname?: string;
  /** Network slot; absent: loopback only. Root containers only. */
  readonly slot?: number;
  /** A cgroup made by `ensureCgroup`; absent: the instance's own. */
  readonly cgroup?: string;
  /** Sysctls inside the sandbox's network namespace: `net.*` only. runc only; runsc ignores none and refuses all. */
  readonly sysctls?: Readonly<Record<string, string>>;
  /** Size limit of /dev/shm; default 64 MiB. */
  readonly shmBytes?: number;
  /** Files, relative to the node's directory, that the container's output is appended to. Absent: discarded. */
  readonly stdoutPath?: string;
  readonly stderrPath?: string;
  /** A sandbox made ahead: it has neither network nor name before a container joins it with `connect`. Its first process reads the name from its input, sets it and answers `ok`. Root containers of runsc with a slot that has no address only. */
  readonly waiting?: boolean;
  /** What the sandbox says of its machine. Root containers of runsc only; default: the machine itself. */
  readonly size?: SandboxSize;
  /** Ends the wait of the sandbox that is joined, in place of `assignSlot`; the container's program runs after that, and when rules are in force for the address. `busy` once a call for the sandbox was cut off: it is of no use then. */
  readonly connect?: SandboxConnection;
  /** The first process says `ready` on its output once it serves, and begins its program when it reads `go`. Not with `stdoutPath`. */
  readonly handshake?: boolean;
  /**
   * Starts the container from a saved state instead of from its program; what else the request names must be what the saved one had, ids aside. The guest goes on when all
   * containers of the state have been restored, the root container first. `restore-refused` where the state does not fit this machine or this root file system,
   * `restore-failed` where the runtime cannot read it; the state stays in both cases. runsc only.
   */
  readonly restoreFrom?: RestoreSource;
}

/** What a waiting sandbox is given when a container joins it. */
export interface SandboxConnection {
  /** The slot it was started with. */
  readonly slot: number;
  readonly address: string;
  readonly hostname: string;
  /** What the sandbox says of its memory from then on. */
  readonly memoryBytes?: number;
}

/** What a sandbox says of its machine. It limits nothing: cgroups do. */
export interface SandboxSize {
  /** MemTotal of /proc/meminfo. */
  readonly memoryBytes: number;
  /** Processors, 2 at least. */
  readonly cpus: number;
}

/** How a container ended. */
export interface ContainerExit {
  /** 0 to 255; 128 + signal for a death by signal. Absent: it ended while no process waited for it (a host reboot, the sentry killed). */
  readonly exitCode?: number;
  readonly signal?: number;
  /** RFC 3339, as precise as the record on disk. */
  readonly finishedAt: string;
}

/** The states of a container. */
export type ContainerStatus = "creating" | "running" | "stopped";

/** A container as disk and runtime have it. */
export interface ContainerState {
  readonly id: string;
  readonly runtime: RuntimeName;
  /** The build of runsc, its version and digest, that started the sandbox; every verb on the container runs it. */
  readonly runtimeVersion?: string;
  /** That build is not installed any more: why most verbs on the container fail, and what to do. */
  readonly runtimeMissing?: string;
  readonly sandboxId: string;
  readonly status: ContainerStatus;
  /** Host process: the sentry under runsc, the process itself under runc; 0 once stopped. */
  readonly pid: number;
  readonly startedAt: string;
  /** Present once stopped. */
  readonly exit?: ContainerExit;
  /** Told by `runContainer` alone: with a handshake, the first process has said that it serves. */
  readonly serving?: boolean;
}

/** A process started inside a running container. */
export interface ExecRequest {
  readonly id: string;
  readonly process: ContainerProcess;
  /** With a terminal, `stderr` stays empty. */
  readonly terminal?: { readonly columns: number; readonly rows: number };
  /** Whether `stdin` is connected; else it is empty. */
  readonly stdin: boolean;
}

/** A build of runsc and the sandboxes that it drives. */
export interface RuntimeVersionUse {
  /** Version and digest; empty for sandboxes of which it is not known. */
  readonly version: string;
  /** Whether sandboxes are started with it. */
  readonly current: boolean;
  readonly installed: boolean;
  readonly sandboxes: number;
}

/** What a runtime of this machine can do. */
export interface RuntimeFeatures {
  readonly runtime: RuntimeName;
  readonly available: boolean;
  /** Why it is not available, and what to do. */
  readonly reason?: string;
  readonly version?: string;
  readonly multiContainer: boolean;
}
