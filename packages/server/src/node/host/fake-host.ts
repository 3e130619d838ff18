import { createHash } from "node:crypto";
import type { ArchiveFile, PackArchiveRequest, SealedArchive, UnpackArchiveRequest } from "./archive.ts";
import type { CgroupReport, CgroupStats, CgroupStatsRequest, EnsureCgroupRequest, FrozenCgroup } from "./cgroup.ts";
import type {
  ContainerExit,
  ContainerMount,
  ContainerState,
  ExecRequest,
  RunContainerRequest,
  SandboxConnection,
} from "./container.ts";
import type { ExecStream } from "./exec-stream.ts";
import { FakeArchives } from "./fake-archives.ts";
import { FakeCgroups } from "./fake-cgroups.ts";
import { FakeContainers } from "./fake-containers.ts";
import { readFakeLayer } from "./fake-layer.ts";
import { type FakeProgram, fakePrograms } from "./fake-process.ts";
import { assertAllows, changedRules, isAddress, isRange } from "./fake-rules.ts";
import { FakeSavedStates } from "./fake-saved-states.ts";
import { type Host, type HostInfo, idPattern, type SweepReport, type SweepRequest } from "./host.ts";
import { HostError } from "./host-error.ts";
import type { ClonedImage, CloneImageRequest } from "./image-clone.ts";
import type { Layer, UnpackLayerRequest } from "./layer.ts";
import type {
  AssignSlotRequest,
  EnsureNetworkRequest,
  EnsureSlotRequest,
  HeldConnection,
  HeldConnections,
  Slot,
} from "./network.ts";
import type { PrepareRootfsRequest, Rootfs, WritableLayer } from "./rootfs.ts";
import type { RuleChange, RuleSet } from "./ruleset.ts";
import type { ContinueSandboxRequest, CopySavedRequest, SavedState, SaveSandboxRequest } from "./saved-state.ts";
import type { EnsureEmptyDirRequest, EnsureVolumeRequest, Volume, VolumeFile, WriteFilesRequest } from "./volume.ts";

const sizeBytesMin = 1 << 20;
const slotMax = 0xffff;
const runtimeVersion = "fake-1";

/** How often the fake looks for held connections. */
const heldLookEveryMs = 5;

/** A helper in memory, for unit tests. `test/host/contract.ts` holds it to what the real one does. Exported for tests. */
export class FakeHost implements Host {
  readonly #layers = new Map<string, Layer>();
  readonly #rootfs = new Map<string, PrepareRootfsRequest>();
  readonly #writable = new Map<string, number>();
  readonly #awaitingRules: (() => void)[] = [];
  readonly #volumes = new Map<string, Volume>();
  readonly #emptyDirs = new Map<string, EnsureEmptyDirRequest>();
  /** Bytes that guests have written, by the id of a root file system. */
  readonly written = new Map<string, number>();
  readonly #slots = new Map<number, Slot>();
  /** Its cgroups, and how the next freezes shall fail. */
  readonly cgroups = new FakeCgroups();
  readonly #containers: FakeContainers;
  /** What was saved, and how the next saves and restores shall fail. */
  readonly saved: FakeSavedStates;
  #network: EnsureNetworkRequest | undefined;

  /** Blobs by their path below the node's directory; put what `unpackLayer` shall find. */
  readonly blobs = new Map<string, Uint8Array>();
  /** Files volumes by id, as last written. */
  readonly files = new Map<string, readonly VolumeFile[]>();
  /** The rule set in force. */
  rules: RuleSet | undefined;
  /** What is held for sleeping addresses; push to play a client. */
  held: HeldConnection[] = [];
  /** Records that the helper set aside. */
  badRecords: string[] = [];
  readonly #arrived = new Set<HeldConnection>();
  readonly #archives = new FakeArchives({
    blobs: this.blobs,
    read: (file) => this.#readArchived(file),
    place: (file, content) => this.#imagesOf(file).set(file.id, renamed(content, file.id)),
  });

  constructor(options?: {
    readonly programs?: Readonly<Record<string, FakeProgram>>;
    /** RFC 3339; default: a fixed instant. */
    readonly now?: () => string;
  }) {
    const now = options?.now ?? (() => "2026-01-01T00:00:00Z");
    this.#containers = new FakeContainers({ programs: { ...fakePrograms, ...options?.programs }, now });
    this.saved = new FakeSavedStates({
      containers: this.#containers,
      now,
      refuseFrozen: (id) => this.#refuseFrozen(id),
    });
  }

  /** What containers wrote to a stdoutPath or stderrPath. */
  outputOf(path: string): string {
    return this.#containers.output.get(path) ?? "";
  }

  /** Ends a container's first process. */
  exitContainer(id: string, exitCode: number): void {
    this.#containers.find(id).process.exit(exitCode);
  }

  async info(): Promise<HostInfo> {
    return {
      version: "fake",
      instance: "fa4e00",
      dataDir: "/var/lib/agent-sandbox",
      runtimes: (["runsc", "runc"] as const).map((runtime) => ({
        runtime,
        available: true,
        version: runtimeVersion,
        multiContainer: true,
      })),
      cgroupMode: "v2",
      cgroupLimits: ["cpu", "memory", "pids", "freezer"],
      cpus: 2,
      memoryBytes: 8 * 2 ** 30,
      diskBytes: 100 * 2 ** 30,
      diskFreeBytes: 50 * 2 ** 30,
      kernel: "fake",
      hostUsrDigest: "host:fake",
      runtimeVersions: [],
      badRecords: this.badRecords,
      cgroupsInUse: false,
    };
  }

  async unpackLayer(request: UnpackLayerRequest): Promise<Layer> {
    assertDigest("digest", request.digest);
    assertDigest("diffId", request.diffId);
    assertRelative("blobPath", request.blobPath);
    const found = this.#layers.get(request.diffId);
    if (found !== undefined) return found;
    const blob = this.blobs.get(request.blobPath);
    if (blob === undefined) throw new HostError("not-found", `blob ${request.blobPath} does not exist`);
    const layer = readFakeLayer(request, blob);
    this.#layers.set(layer.id, layer);
    return layer;
  }

  async listLayers(): Promise<readonly Layer[]> {
    return [...this.#layers.values()];
  }

  async removeLayer(request: { readonly id: string }): Promise<void> {
    assertDigest("id", request.id);
    if ([...this.#rootfs.values()].some((rootfs) => rootfs.layers?.includes(request.id))) {
      throw new HostError("busy", `layer ${request.id} is under a root file system`);
    }
    this.#layers.delete(request.id);
  }

  async prepareRootfs(request: PrepareRootfsRequest): Promise<Rootfs> {
    assertId("id", request.id);
    if (request.keepKey !== undefined) assertId("keepKey", request.keepKey);
    const sources = [request.hostUsr === true, (request.layers ?? []).length > 0, request.spare === true];
    if (sources.filter(Boolean).length !== 1) {
      throw new HostError("invalid-argument", "layers: give layers, hostUsr or spare, one of them");
    }
    if (request.spare === true && (request.keepKey ?? request.writableFrom) !== undefined) {
      throw new HostError("invalid-argument", "spare: one that is made ahead is empty and nobody's");
    }
    const spare = this.#rootfs.get(request.writableFrom ?? "");
    if (spare !== undefined && spare.spare !== true) {
      throw new HostError("invalid-argument", `writableFrom: ${spare.id} is a root file system and no spare`);
    }
    assertSize("writableBytes", request.writableBytes);
    for (const id of request.layers ?? []) {
      if (!this.#layers.has(id)) throw new HostError("not-found", `layer ${id} is not unpacked`);
    }
    const before = this.#rootfs.get(request.id);
    if (before !== undefined && sourceOf(before) !== sourceOf(request)) {
      throw new HostError("already-exists", `root file system ${request.id} is made of something else`);
    }
    const holder = [...this.#rootfs.values()].find(
      ({ id, keepKey }) => keepKey !== undefined && keepKey === request.keepKey && id !== request.id,
    );
    if (holder !== undefined) {
      throw new HostError("busy", `writable layer ${request.keepKey} is held by root file system ${holder.id}`);
    }
    this.#takeSpare(request, before !== undefined);
    this.#rootfs.set(request.id, request);
    if (request.keepKey !== undefined) {
      const size = this.#writable.get(request.keepKey) ?? 0;
      this.#writable.set(request.keepKey, Math.max(size, request.writableBytes));
    }
    return rootfsOf(request);
  }

  #takeSpare({ keepKey, writableFrom, writableBytes }: PrepareRootfsRequest, isThere: boolean): void {
    const spare = this.#rootfs.get(writableFrom ?? "");
    const hasWritable = keepKey === undefined ? isThere : this.#writable.has(keepKey);
    if (spare?.spare === true && !hasWritable && spare.writableBytes === writableBytes) this.#rootfs.delete(spare.id);
  }

  async listRootfs(): Promise<readonly Rootfs[]> {
    return [...this.#rootfs.values()].map((request) => ({
      ...rootfsOf(request),
      writable: { sizeBytes: request.writableBytes, usedBytes: this.written.get(request.id) ?? 0 },
    }));
  }

  async releaseRootfs(request: { readonly id: string }): Promise<void> {
    assertId("id", request.id);
    if (this.#containers.usesRootfs(request.id)) throw new HostError("busy", "a container runs on it");
    this.#rootfs.delete(request.id);
  }

  async listWritableLayers(): Promise<readonly WritableLayer[]> {
    const inUse = new Set([...this.#rootfs.values()].map((rootfs) => rootfs.keepKey));
    return [...this.#writable].map(([key, sizeBytes]) => ({ key, sizeBytes, usedBytes: 0, mounted: inUse.has(key) }));
  }

  async cloneImage({ kind, from, to, pauseMaxMs }: CloneImageRequest): Promise<ClonedImage> {
    assertId("from", from);
    assertId("to", to);
    if (from === to || pauseMaxMs < 1) throw new HostError("invalid-argument", `to: ${to} is the image itself`);
    const images = this.#imagesOf({ kind });
    const image = images.get(from);
    if (image === undefined) throw new HostError("not-found", `there is no ${kind} ${from}`);
    if (!images.has(to)) images.set(to, renamed(image, to));
    return { pausedMs: 0, copy: "copy", usedBytes: 1 << 20 };
  }

  #imagesOf({ kind }: Pick<ArchiveFile, "kind">): Map<string, unknown> {
    const { states } = this.saved;
    return { writable: this.#writable, volume: this.#volumes, "empty-dir": this.#emptyDirs, saved: states }[kind];
  }

  #readArchived(file: ArchiveFile): unknown {
    const found = this.#imagesOf(file).get(file.id);
    if (found === undefined) throw new HostError("not-found", `there is no ${file.kind} ${file.id}`);
    return found;
  }

  async deleteWritableLayer(request: { readonly key: string }): Promise<void> {
    assertId("key", request.key);
    if ([...this.#rootfs.values()].some((rootfs) => rootfs.keepKey === request.key)) {
      throw new HostError("busy", `writable layer ${request.key} is in use by a root file system`);
    }
    this.#writable.delete(request.key);
  }

  async ensureVolume(request: EnsureVolumeRequest): Promise<Volume> {
    assertId("id", request.id);
    assertSize("sizeBytes", request.sizeBytes);
    const before = this.#volumes.get(request.id)?.sizeBytes ?? 0;
    const rounded = Math.ceil(request.sizeBytes / 4096) * 4096;
    const volume = { id: request.id, sizeBytes: Math.max(before, rounded), usedBytes: 0, mounted: true };
    this.#volumes.set(request.id, volume);
    return volume;
  }

  async listVolumes(): Promise<readonly Volume[]> {
    return [...this.#volumes.values()];
  }

  async releaseVolume(request: { readonly id: string }): Promise<void> {
    assertId("id", request.id);
    const volume = this.#volumes.get(request.id);
    if (volume !== undefined) this.#volumes.set(request.id, { ...volume, mounted: false });
  }

  async deleteVolume(request: { readonly id: string }): Promise<void> {
    assertId("id", request.id);
    this.#volumes.delete(request.id);
  }

  async ensureEmptyDir(request: EnsureEmptyDirRequest): Promise<void> {
    assertId("id", request.id);
    if (request.sizeBytes !== undefined) assertSize("sizeBytes", request.sizeBytes);
    if (request.memory === true && request.sizeBytes === undefined) {
      throw new HostError("invalid-argument", "sizeBytes: a directory in memory needs a limit");
    }
    this.#emptyDirs.set(request.id, request);
  }

  async listEmptyDirs(): Promise<readonly Volume[]> {
    return [...this.#emptyDirs.values()].flatMap(({ id, sizeBytes = 0, memory }) =>
      sizeBytes === 0 || memory === true ? [] : [{ id, sizeBytes, usedBytes: 0, mounted: true }],
    );
  }

  async removeEmptyDir(request: { readonly id: string }): Promise<void> {
    assertId("id", request.id);
    this.#emptyDirs.delete(request.id);
  }

  async writeFiles(request: WriteFilesRequest): Promise<void> {
    assertId("id", request.id);
    for (const [i, file] of request.files.entries()) {
      assertRelative(`files[${i}].path`, file.path);
      if (file.mode > 0o777) throw new HostError("invalid-argument", `files[${i}].mode: is more than 0777`);
    }
    this.files.set(request.id, request.files);
  }

  async removeFiles(request: { readonly id: string }): Promise<void> {
    assertId("id", request.id);
    this.files.delete(request.id);
  }

  async ensureNetwork(request: EnsureNetworkRequest): Promise<void> {
    if (!isRange(request.cidr)) throw new HostError("invalid-argument", `cidr: "${request.cidr}" is not an IPv4 range`);
    if (!isAddress(request.gateway)) throw new HostError("invalid-argument", "gateway: is not an IPv4 address");
    this.#network = request;
  }

  async ensureSlot(request: EnsureSlotRequest): Promise<Slot> {
    assertSlot(request.slot);
    const digits = request.slot.toString(16).padStart(4, "0");
    const slot = this.#slots.get(request.slot) ?? {
      slot: request.slot,
      namespace: `as-fa4e00-${digits}`,
      hostLink: `asfa4e00h${digits}`,
    };
    this.#slots.set(request.slot, slot);
    return slot;
  }

  async assignSlot(request: AssignSlotRequest): Promise<Slot> {
    assertSlot(request.slot);
    if (!isAddress(request.address)) throw new HostError("invalid-argument", "address: is not an IPv4 address");
    if (this.#network === undefined) throw new HostError("not-found", "the network was not set up");
    const slot = this.#slots.get(request.slot);
    if (slot === undefined) throw new HostError("not-found", `slot ${request.slot} does not exist`);
    const assigned = { ...slot, address: request.address };
    this.#slots.set(request.slot, assigned);
    return assigned;
  }

  async releaseSlot(request: { readonly slot: number }): Promise<void> {
    assertSlot(request.slot);
    this.#slots.delete(request.slot);
  }

  async listSlots(): Promise<readonly Slot[]> {
    return [...this.#slots.values()];
  }

  async applyRules(request: RuleSet): Promise<void> {
    for (const endpoint of request.endpoints) {
      assertSlot(endpoint.slot);
      if (!isAddress(endpoint.address)) throw new HostError("invalid-argument", "address: is not an IPv4 address");
      assertAllows([...endpoint.ingress, ...endpoint.egress]);
    }
    if (this.#network === undefined) throw new HostError("not-found", "the network was not set up");
    this.rules = request;
    for (const tell of this.#awaitingRules.splice(0)) tell();
  }

  async changeRules(request: RuleChange): Promise<void> {
    if (this.rules === undefined || this.rules.revision !== request.base)
      throw new HostError("not-found", `rules of revision "${request.base}" are not in force: send all of them`);
    await this.applyRules(changedRules(this.rules, request));
  }

  async #covered({ slot, address }: SandboxConnection): Promise<void> {
    while (this.rules?.endpoints.some((rules) => rules.slot === slot && rules.address === address) !== true)
      await new Promise<void>((resolve) => this.#awaitingRules.push(resolve));
  }

  async waitHeld(
    { waitMs, after }: { readonly waitMs: number; readonly after: number },
    signal?: AbortSignal,
  ): Promise<HeldConnections> {
    const endMs = performance.now() + waitMs;
    // Tests put connections into the list by hand, so the fake looks.
    while (this.arrivals() === after && performance.now() < endMs) {
      signal?.throwIfAborted();
      await new Promise((resolve) => setTimeout(resolve, heldLookEveryMs));
    }
    return { connections: [...this.held], count: this.arrivals() };
  }

  /** Counts each connection of the list once. */
  arrivals(): number {
    for (const one of this.held) this.#arrived.add(one);
    return this.#arrived.size;
  }

  async handOver(request: { readonly address: string }): Promise<{ connections: number }> {
    const before = this.held.length;
    this.held = this.held.filter((one) => one.address !== request.address);
    return { connections: before - this.held.length };
  }

  async dropHeld(request: { readonly address: string }): Promise<void> {
    this.held = this.held.filter((one) => one.address !== request.address);
  }

  async ensureCgroup(request: EnsureCgroupRequest): Promise<CgroupReport> {
    assertId("id", request.id);
    return this.cgroups.ensure(request);
  }

  async cgroupStats({ id, shared = false }: CgroupStatsRequest): Promise<CgroupStats> {
    assertId("id", id);
    return { ...this.cgroups.stats(id), ...(shared && { sharedBytes: this.cgroups.sharedBytes }) };
  }

  async freezeCgroup({ id }: { readonly id: string }): Promise<FrozenCgroup> {
    assertId("id", id);
    return this.cgroups.freeze(id);
  }

  async thawCgroup({ id }: { readonly id: string }): Promise<void> {
    assertId("id", id);
    this.cgroups.thaw(id);
  }

  async removeCgroup({ id }: { readonly id: string }): Promise<void> {
    assertId("id", id);
    this.cgroups.remove(id);
  }

  async runContainer(request: RunContainerRequest): Promise<ContainerState> {
    assertId("id", request.id);
    if (request.process.argv.length === 0) throw new HostError("invalid-argument", "process.argv: is empty");
    if (!this.#rootfs.has(request.rootfs)) {
      throw new HostError("not-found", `root file system ${request.rootfs} is not prepared`);
    }
    if (request.slot !== undefined && !this.#slots.has(request.slot)) {
      throw new HostError("not-found", `slot ${request.slot} does not exist`);
    }
    if (request.cgroup !== undefined && !this.cgroups.has(request.cgroup)) {
      throw new HostError("not-found", `cgroup ${request.cgroup} does not exist`);
    }
    if (this.cgroups.isFrozen(request.cgroup ?? "")) throw new HostError("busy", `cgroup ${request.cgroup} is frozen`);
    for (const mount of request.mounts) this.#assertMount(mount);
    if (request.waiting === true) assertWaiting(request);
    if (request.handshake === true && request.stdoutPath !== undefined) {
      throw new HostError("invalid-argument", "handshake: the container's output is for us");
    }
    this.saved.assertRestorable(request);
    if (request.sandboxId !== undefined) this.saved.assertGoing(request.sandboxId);
    await this.#connect(request);
    return this.#containers.run(request);
  }

  async #connect({ sandboxId, connect }: RunContainerRequest): Promise<void> {
    if (connect === undefined) return;
    if (sandboxId === undefined) {
      throw new HostError("invalid-argument", "connect: only a container that joins a sandbox can connect it");
    }
    if (!/^[a-z0-9A-Z][a-z0-9A-Z.-]{0,62}$/.test(connect.hostname)) {
      throw new HostError("invalid-argument", `connect.hostname: "${connect.hostname}" is not a host name`);
    }
    this.#containers.connect(sandboxId, connect);
    await this.assignSlot(connect);
    await this.#covered(connect);
  }

  #assertMount({ source }: ContainerMount): void {
    const missing = (what: string) => new HostError("not-found", `${what} does not exist`);
    switch (source.kind) {
      case "volume":
        if (this.#volumes.get(source.id)?.mounted !== true) throw missing(`volume ${source.id}`);
        break;
      case "empty-dir":
        if (!this.#emptyDirs.has(source.id)) throw missing(`empty directory ${source.id}`);
        break;
      case "files":
        if (!this.files.has(source.id)) throw missing(`files volume ${source.id}`);
        break;
      case "host-path":
        throw new HostError("host-path-denied", `host path ${source.path} is not below one that the operator allowed`);
      case "program":
      case "tmpfs":
        break;
    }
  }

  async listContainers(): Promise<readonly ContainerState[]> {
    return this.#containers.list();
  }

  waitContainer(
    request: { readonly id: string; readonly waitMs: number },
    signal?: AbortSignal,
  ): Promise<ContainerExit | undefined> {
    return this.#containers.wait(request.id, request.waitMs, signal);
  }

  async killContainer(request: { readonly id: string; readonly signal: string }): Promise<void> {
    if (request.signal === "KILL") this.cgroups.letEnd(this.#containers.groupOf(request.id));
    else this.#refuseFrozen(request.id);
    this.#containers.kill(request.id, request.signal);
  }

  async deleteContainer(request: { readonly id: string }): Promise<void> {
    assertId("id", request.id);
    this.cgroups.letEnd(this.#containers.groupOf(request.id));
    this.#containers.delete(request.id);
  }

  async exec(request: ExecRequest): Promise<ExecStream> {
    this.saved.assertGoing(this.#containers.state(request.id).sandboxId);
    this.#refuseFrozen(request.id);
    return this.#containers.exec(request);
  }

  #refuseFrozen(id: string): void {
    const isFrozen = this.cgroups.isFrozen(this.#containers.groupOf(id));
    if (isFrozen) throw new HostError("busy", `container ${id} is frozen`);
  }

  saveSandbox = async (request: SaveSandboxRequest): Promise<SavedState> => this.saved.save(request);
  continueSandbox = async (request: ContinueSandboxRequest): Promise<void> => this.saved.continue(request);
  copySaved = async (request: CopySavedRequest): Promise<SavedState> => this.saved.copy(request);
  listSaved = async (): Promise<readonly SavedState[]> => this.saved.list();
  discardSaved = async (request: { readonly id: string }): Promise<void> => this.saved.discard(request.id);
  waitRestored = async (request: { readonly id: string; readonly waitMs: number }): Promise<"restored" | undefined> =>
    this.saved.restored(request.id);

  packArchive = async (request: PackArchiveRequest) => this.#archives.pack(request);
  sealArchive = async ({ id, entry }: Parameters<Host["sealArchive"]>[0]) => this.#archives.seal(id, entry);
  openArchive = async (request: SealedArchive) => this.#archives.open(request);
  unpackArchive = async (request: UnpackArchiveRequest) => this.#archives.unpack(request);
  forgetArchive = async ({ id }: { readonly id: string }) => this.#archives.forget(id);

  async sweep(request: SweepRequest): Promise<SweepReport> {
    const removed: { kind: string; name: string }[] = [];
    const drop = <K>(kind: string, found: Iterable<K>, wanted: readonly K[], remove: (key: K) => void) => {
      for (const key of [...found].filter((each) => !wanted.includes(each))) {
        remove(key);
        removed.push({ kind, name: String(key) });
      }
    };
    const containers = this.#containers.list();
    const roots = containers.filter((c) => request.containers.includes(c.id)).map((c) => c.sandboxId);
    drop(
      "container",
      containers.map((c) => c.id),
      [...request.containers, ...roots],
      (id) => this.#containers.delete(id),
    );
    drop("rootfs", this.#rootfs.keys(), request.rootfs, (id) => this.#rootfs.delete(id));
    drop("writable-layer", this.#writable.keys(), request.writableLayers, (key) => this.#writable.delete(key));
    const mounted = [...this.#volumes.values()].filter((volume) => volume.mounted).map((volume) => volume.id);
    drop("volume-mount", mounted, request.volumes, (id) => void this.releaseVolume({ id }));
    drop("empty-dir", this.#emptyDirs.keys(), request.emptyDirs, (id) => this.#emptyDirs.delete(id));
    drop("files", this.files.keys(), request.files, (id) => this.files.delete(id));
    const saved = this.saved.list().map((state) => state.id);
    drop("saved", saved, request.saved, (id) => this.saved.discard(id));
    drop("slot", this.#slots.keys(), request.slots, (slot) => this.#slots.delete(slot));
    drop("cgroup", this.cgroups.ids(), request.cgroups, (id) => this.cgroups.remove(id));
    if (!request.network) {
      this.#network = undefined;
      this.rules = undefined;
    }
    return { removed, failed: [] };
  }

  async close(): Promise<void> {}
}

function rootfsOf(request: PrepareRootfsRequest): Rootfs {
  return {
    id: request.id,
    path: `/var/lib/agent-sandbox/mnt/rootfs/${request.id}`,
    ...(request.keepKey === undefined ? {} : { keepKey: request.keepKey }),
    sourceDigest: createHash("sha256").update(sourceOf(request)).digest("hex"),
  };
}

function sourceOf(request: PrepareRootfsRequest): string {
  return JSON.stringify([request.hostUsr === true, request.layers ?? [], request.keepKey ?? ""]);
}

function assertWaiting({ runtime, sandboxId, slot, hostname, stdoutPath }: RunContainerRequest): void {
  const known = [sandboxId, hostname, stdoutPath];
  if (runtime === "runsc" && slot !== undefined && known.every((value) => value === undefined)) return;
  throw new HostError("invalid-argument", "waiting: only a root container of runsc with a slot can wait");
}

function assertId(field: string, id: string): void {
  if (!idPattern.test(id)) throw new HostError("invalid-argument", `${field}: "${id}" is not an id`);
}

function assertDigest(field: string, digest: string): void {
  if (!/^sha256:[0-9a-f]{64}$/.test(digest)) throw new HostError("invalid-argument", `${field}: is not a digest`);
}

function assertSize(field: string, sizeBytes: number): void {
  if (sizeBytes < sizeBytesMin) throw new HostError("invalid-argument", `${field}: ${sizeBytes} is too small`);
}

function renamed(image: unknown, id: string): unknown {
  return typeof image === "object" ? { ...image, id } : image;
}

function assertSlot(slot: number): void {
  if (!Number.isInteger(slot) || slot < 0 || slot > slotMax) throw new HostError("invalid-argument", `slot: ${slot}`);
}

function assertRelative(field: string, path: string): void {
  if (path === "" || path.startsWith("/")) throw new HostError("invalid-argument", `${field}: is not a relative path`);
  if (path.split("/").includes("..")) throw new HostError("path-escape", `${field}: "${path}" leads outside`);
}
