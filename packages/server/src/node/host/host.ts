import type {
  ArchivePart,
  OpenedArchive,
  PackArchiveRequest,
  SealedArchive,
  UnpackArchiveRequest,
  UnpackedArchive,
} from "./archive.ts";
import type { CgroupReport, CgroupStats, CgroupStatsRequest, EnsureCgroupRequest, FrozenCgroup } from "./cgroup.ts";
import type {
  ContainerExit,
  ContainerState,
  ExecRequest,
  RunContainerRequest,
  RuntimeFeatures,
  RuntimeVersionUse,
} from "./container.ts";
import type { ExecStream } from "./exec-stream.ts";
import type { ClonedImage, CloneImageRequest } from "./image-clone.ts";
import type { Layer, UnpackLayerRequest } from "./layer.ts";
import type { AssignSlotRequest, EnsureNetworkRequest, EnsureSlotRequest, HeldConnections, Slot } from "./network.ts";
import type { PrepareRootfsRequest, Rootfs, WritableLayer } from "./rootfs.ts";
import type { RuleChange, RuleSet } from "./ruleset.ts";
import type { ContinueSandboxRequest, CopySavedRequest, SavedState, SaveSandboxRequest } from "./saved-state.ts";
import type { EnsureEmptyDirRequest, EnsureVolumeRequest, Volume, WriteFilesRequest } from "./volume.ts";

/** Ids of root file systems, volumes, cgroups and containers: 1 to 52 characters, so that a runtime's socket path stays under the kernel's 108 bytes. */
export const idPattern = /^[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$/;

/** What the helper says about itself and its machine. */
export interface HostInfo {
  readonly version: string;
  readonly instance: string;
  readonly dataDir: string;
  readonly runtimes: readonly RuntimeFeatures[];
  readonly cgroupMode: "v1" | "v2" | "hybrid";
  /** Limits this machine can enforce. */
  readonly cgroupLimits: readonly ("cpu" | "memory" | "pids" | "freezer")[];
  readonly cpus: number;
  readonly memoryBytes: number;
  /** Of the file system that holds the data directory. */
  readonly diskBytes: number;
  readonly diskFreeBytes: number;
  readonly kernel: string;
  /** Identity of the `host` image's tree; changes when this machine's packages do. */
  readonly hostUsrDigest: string;
  /** The builds of runsc that are installed, or that a sandbox needs; one stays until no sandbox needs it. */
  readonly runtimeVersions: readonly RuntimeVersionUse[];
  /** Records that could not be read and were set aside, by name; they lie in `host/bad` of the data directory until an operator removes them. */
  readonly badRecords: readonly string[];
  /** An engine in another root or container has the cgroups of this instance's name: no sandbox can be made. */
  readonly cgroupsInUse: boolean;
}

/** What is still wanted; everything else of the instance is removed by `sweep`. */
export interface SweepRequest {
  readonly containers: readonly string[];
  readonly rootfs: readonly string[];
  /** Kept writable layers. */
  readonly writableLayers: readonly string[];
  /** Volumes that stay mounted. Unwanted ones are unmounted; their images are only deleted by `deleteVolume`. */
  readonly volumes: readonly string[];
  readonly emptyDirs: readonly string[];
  readonly files: readonly string[];
  readonly slots: readonly number[];
  readonly cgroups: readonly string[];
  /** Saved states. */
  readonly saved: readonly string[];
  /** Whether to keep the rule set and the gateway link; false for `down`. */
  readonly network: boolean;
}

/** What `sweep` removed, by kind and name; `failed` says what it could not remove and why. */
export interface SweepReport {
  readonly removed: readonly { readonly kind: string; readonly name: string }[];
  readonly failed: readonly { readonly kind: string; readonly name: string; readonly message: string }[];
}

/**
 * The one seam to sandbox-host. Every verb is idempotent: calling it again after a lost answer completes or repeats it. Verbs on one id are carried
 * out one after the other; verbs on different ids at the same time. All reject with HostError; a removal of what is not there succeeds.
 */
export interface Host {
  info(signal?: AbortSignal): Promise<HostInfo>;

  unpackLayer(request: UnpackLayerRequest, signal?: AbortSignal): Promise<Layer>;
  listLayers(signal?: AbortSignal): Promise<readonly Layer[]>;
  /** `busy` while a root file system is stacked on it. */
  removeLayer(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;

  /** `busy` while another root file system has the writable layer. */
  prepareRootfs(request: PrepareRootfsRequest, signal?: AbortSignal): Promise<Rootfs>;
  listRootfs(signal?: AbortSignal): Promise<readonly Rootfs[]>;
  /** Unmounts; deletes the writable layer unless it has a keepKey. `busy` while a container runs on it. */
  releaseRootfs(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;
  listWritableLayers(signal?: AbortSignal): Promise<readonly WritableLayer[]>;
  /** Copies an image as it is at one moment; one of the new name that is there is left as it is. `busy` where its writers would wait too long. */
  cloneImage(request: CloneImageRequest, signal?: AbortSignal): Promise<ClonedImage>;
  deleteWritableLayer(request: { readonly key: string }, signal?: AbortSignal): Promise<void>;

  /** Makes the volume if it does not exist, grows it if it is smaller than asked (never shrinks), and mounts it. `busy` when it must grow while in use and this machine lacks CAP_SYS_RESOURCE for that. */
  ensureVolume(request: EnsureVolumeRequest, signal?: AbortSignal): Promise<Volume>;
  listVolumes(signal?: AbortSignal): Promise<readonly Volume[]>;
  /** How full the emptyDirs are that have an image of their own; not those in memory. */
  listEmptyDirs(signal?: AbortSignal): Promise<readonly Volume[]>;
  /** Unmounts; what was written stays. */
  releaseVolume(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;
  deleteVolume(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;
  ensureEmptyDir(request: EnsureEmptyDirRequest, signal?: AbortSignal): Promise<void>;
  removeEmptyDir(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;
  writeFiles(request: WriteFilesRequest, signal?: AbortSignal): Promise<void>;
  removeFiles(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;

  ensureNetwork(request: EnsureNetworkRequest, signal?: AbortSignal): Promise<void>;
  ensureSlot(request: EnsureSlotRequest, signal?: AbortSignal): Promise<Slot>;
  assignSlot(request: AssignSlotRequest, signal?: AbortSignal): Promise<Slot>;
  releaseSlot(request: { readonly slot: number }, signal?: AbortSignal): Promise<void>;
  listSlots(signal?: AbortSignal): Promise<readonly Slot[]>;
  applyRules(request: RuleSet, signal?: AbortSignal): Promise<void>;
  /** `not-found` when the change builds on another revision than the one in force: `applyRules` then. */
  changeRules(request: RuleChange, signal?: AbortSignal): Promise<void>;
  /** Resolves with what is held, at once if `after` is not the count of arrivals so far, else when a connection arrives or `waitMs` passed. */
  waitHeld(
    request: { readonly waitMs: number; readonly after: number },
    signal?: AbortSignal,
  ): Promise<HeldConnections>;
  /** Connects what is held for an address to the sandbox that now has it, from now on and until the connection ends. Call after `assignSlot` and readiness. */
  handOver(request: { readonly address: string }, signal?: AbortSignal): Promise<{ readonly connections: number }>;
  /** Resets what is held for an address. */
  dropHeld(request: { readonly address: string }, signal?: AbortSignal): Promise<void>;

  ensureCgroup(request: EnsureCgroupRequest, signal?: AbortSignal): Promise<CgroupReport>;
  cgroupStats(request: CgroupStatsRequest, signal?: AbortSignal): Promise<CgroupStats>;
  /**
   * Stops every process of a pod where it stands, the runtime's included, and gives back what memory it can. Until it is thawed no container can be started in it, and `exec` and
   * signals are `busy`; KILL, `deleteContainer` and `removeCgroup` thaw it. `deadline-exceeded` where not all processes could be stopped; they run on then.
   */
  freezeCgroup(request: { readonly id: string }, signal?: AbortSignal): Promise<FrozenCgroup>;
  /** Lets the processes go on; those that do already are a success. */
  thawCgroup(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;
  /** Kills what is left inside, then removes it. */
  removeCgroup(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;

  /** Starts a container, or finds it if it was started by the same id. Resolves once its first process runs; with a handshake once it serves, or takes long to. */
  runContainer(request: RunContainerRequest, signal?: AbortSignal): Promise<ContainerState>;
  listContainers(signal?: AbortSignal): Promise<readonly ContainerState[]>;
  /** Resolves with how the container ended, or with undefined when `waitMs` passed first. Works also for a container that ended while the helper was away. */
  waitContainer(
    request: { readonly id: string; readonly waitMs: number },
    signal?: AbortSignal,
  ): Promise<ContainerExit | undefined>;
  /** Sends a signal (name without SIG, for example `TERM`) to the first process, or to all. A stopped container is a success. */
  killContainer(
    request: { readonly id: string; readonly signal: string; readonly all?: boolean },
    signal?: AbortSignal,
  ): Promise<void>;
  /** Kills and removes a container; of a root container also all that joined it. */
  deleteContainer(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;
  /** Runs a process in a container. Rejects with `start-failed` when it cannot be started. */
  exec(request: ExecRequest, signal?: AbortSignal): Promise<ExecStream>;

  /**
   * Pauses a sandbox and writes its memory to disk. The guest stands still once this has resolved, until `continueSandbox` or `deleteContainer`; where it rejects, nothing is
   * saved and the guest runs on. `no-space` where the disk is short, `save-failed` where the runtime could not or what it wrote is not whole, `already-exists` where the
   * state's name is taken, `unsupported` for runc.
   */
  saveSandbox(request: SaveSandboxRequest, signal?: AbortSignal): Promise<SavedState>;
  /** Lets a paused sandbox go on; one that is not paused is a success. The state that it was saved to is unusable after that, unless it is reusable. A sandbox that has ended is `busy` or `not-found`, and its saved state stays. */
  continueSandbox(request: ContinueSandboxRequest, signal?: AbortSignal): Promise<void>;
  listSaved(signal?: AbortSignal): Promise<readonly SavedState[]>;
  /** Gives a state whose guest has not gone on a second name, under which it may be restored more than once; one of that name that is there is left as it is. */
  copySaved(request: CopySavedRequest, signal?: AbortSignal): Promise<SavedState>;
  /** `busy` while pages of it are still being read. */
  discardSaved(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;
  /**
   * Resolves with "restored" once the whole memory of a sandbox that `runContainer` started from a saved state has been read, by its root container, or with undefined when
   * `waitMs` passed first. Rejects with `restore-failed` where pages could not be read; the sandbox has ended then, and the saved state stays.
   */
  waitRestored(
    request: { readonly id: string; readonly waitMs: number },
    signal?: AbortSignal,
  ): Promise<"restored" | undefined>;

  /** Writes a part of an archive to a file of the node's: encrypted, and the same bytes each time. Parts are packed in their order. Without `to`, what is known of a part that was packed before, or undefined. `busy` while an image is mounted. */
  packArchive(request: PackArchiveRequest, signal?: AbortSignal): Promise<ArchivePart | undefined>;
  /** Makes the entry of an archive whose parts are all packed, with the node's own words in it; its key is in it too, wrapped by the engine's. */
  sealArchive(request: { readonly id: string; readonly entry: unknown }, signal?: AbortSignal): Promise<SealedArchive>;
  /** Reads an entry. `not-found` where this engine has not its key, `digest-mismatch` where it is not what was written under that id. */
  openArchive(request: SealedArchive, signal?: AbortSignal): Promise<OpenedArchive>;
  /** Takes the next part. No file has its place before the last part is in and everything was compared; `digest-mismatch` where a part is not what was written, which may be given again. */
  unpackArchive(request: UnpackArchiveRequest, signal?: AbortSignal): Promise<UnpackedArchive>;
  /** Removes what is on its way under an id; what was packed, sealed or put in its place stays. */
  forgetArchive(request: { readonly id: string }, signal?: AbortSignal): Promise<void>;

  /** Removes what this instance left and no record names any more. */
  sweep(request: SweepRequest, signal?: AbortSignal): Promise<SweepReport>;
  /** Frees the connections to the helper. */
  close(): Promise<void>;
}
