import type { Pod, Sandbox, SandboxSnapshot } from "@agent-sandbox/api";
import {
  isNamedBy,
  keyOf,
  pods,
  recalledArchiveOf,
  sandboxArchives,
  sandboxes,
  sandboxSnapshots,
  snapshotState,
  uidOf,
} from "@agent-sandbox/api";
import { type Client, createClient, type Transport } from "@agent-sandbox/kube";
import { doDuty } from "../../packages/server/src/node/archive/archive-duties.ts";
import { MemoryArchive } from "../../packages/server/src/node/archive/testing/memory-archive.ts";
import { keptLayerKey } from "../../packages/server/src/node/pods/kept-layer.ts";
import { everybody, type Ground } from "./ground.ts";

/** How the node of an archive behaves. */
export interface ArchiveNodeOptions {
  readonly ground: Ground;
  /** Wraps the node's way to the server. */
  readonly disturb?: (transport: Transport) => Transport;
  /** False: it was given no archive. */
  readonly hasArchive?: boolean;
}

/**
 * A node with the files of all Sandboxes: every run of one leaves another version of its files. What it does for archives is the real code; files, snapshots and
 * the store are in memory.
 */
export class ArchiveNode {
  readonly archive: MemoryArchive;
  /** Version of the files by the uid of their Sandbox. */
  readonly files = new Map<string, string>();
  /** Version of the files in each complete snapshot, by uid. */
  readonly snapshots = new Map<string, string>();
  /** The latest version that a Sandbox of this name has written. */
  readonly latest = new Map<string, string>();
  /** What must never happen and did. */
  readonly problems: string[] = [];
  hasArchive: boolean;
  readonly #ground: Ground;
  readonly #client: Client;
  readonly #ran = new Set<string>();
  #runs = 0;

  constructor({ ground, disturb = (transport) => transport, hasArchive = true }: ArchiveNodeOptions) {
    this.#ground = ground;
    this.hasArchive = hasArchive;
    this.#client = createClient(disturb(ground.api.transportFor(everybody)));
    this.archive = new MemoryArchive({
      read: (uid) => this.snapshots.get(uid),
      write: (uid, content) => void this.snapshots.set(uid, content),
    });
  }

  /** One round over everything; true when something was changed. */
  async step(): Promise<boolean> {
    const before = this.#ground.revision();
    this.#run();
    for (const snapshot of this.#ground.read(sandboxSnapshots)) await this.#snapshot(snapshot).catch(ignoreFaults);
    for (const archive of this.#ground.read(sandboxArchives)) {
      await doDuty(this.#desk(), archive, AbortSignal.timeout(60_000)).catch(ignoreFaults);
    }
    this.#forget();
    return this.#ground.revision() !== before;
  }

  /** What the world has lost: the latest files of a name are with its Sandbox, or in the store under an archive that is there. */
  lost(): string[] {
    const boxes = this.#ground.read(sandboxes);
    const archives = this.#ground.read(sandboxArchives);
    const lost: string[] = [];
    for (const [name, version] of this.latest) {
      const box = boxes.find(({ metadata }) => metadata.name === name);
      const own = box === undefined ? undefined : this.files.get(uidOf(box));
      const id = archives.find(({ metadata }) => metadata.name === name)?.status?.archiveID ?? "";
      if (own !== version && this.archive.contentOf(id) !== version)
        lost.push(
          `version ${version} of ${name} is lost: its Sandbox has ${own}, its archive ${this.archive.contentOf(id)}`,
        );
    }
    return [...this.problems, ...lost];
  }

  #desk() {
    return {
      client: this.#client,
      host: { listWritableLayers: async () => [...this.files.keys()].map(layerOf) },
      clock: this.#ground.clock,
      nodeName: "node-1",
      sandbox: (key: string) => this.#ground.read(sandboxes).find((each) => keyOf(each) === key),
      snapshot: (key: string) => this.#ground.read(sandboxSnapshots).find((each) => keyOf(each) === key),
      work: this.hasArchive ? this.archive : undefined,
    };
  }

  /** Every Pod that runs and that its Sandbox names has written to its files. */
  #run(): void {
    const running = this.#ground.read(pods).filter(({ status }) => status?.phase === "Running");
    for (const sandbox of this.#ground.read(sandboxes)) {
      for (const pod of running) if (isNamedBy(pod, sandbox)) this.#runPod(sandbox, pod);
    }
  }

  #runPod(sandbox: Sandbox, pod: Pod): void {
    if (this.#ran.has(uidOf(pod))) return;
    this.#ran.add(uidOf(pod));
    const { name } = sandbox.metadata;
    const { restoredFrom } = sandbox.status ?? {};
    const isFirst = !this.files.has(uidOf(sandbox));
    if (isFirst && restoredFrom !== undefined) {
      const origin = this.snapshots.get(restoredFrom.uid);
      if (origin !== this.latest.get(name))
        this.problems.push(`${name} started from version ${origin} and the latest was ${this.latest.get(name)}`);
    }
    this.#runs += 1;
    const version = `${name}-${this.#runs}`;
    this.files.set(uidOf(sandbox), version);
    this.latest.set(name, version);
  }

  /** Takes a snapshot of a Sandbox, or says that the files of an archive are there. */
  async #snapshot(snapshot: SandboxSnapshot): Promise<void> {
    const { state } = snapshotState(snapshot);
    if (state === "ready" || state === "failed") return;
    const uid = uidOf(snapshot);
    if (recalledArchiveOf(snapshot) === undefined) {
      const box = this.#ground.read(sandboxes).find(({ metadata }) => metadata.name === snapshot.spec.sandboxName);
      const files = box === undefined ? undefined : this.files.get(uidOf(box));
      if (files === undefined) return;
      this.snapshots.set(uid, files);
    } else if (!this.snapshots.has(uid)) return;
    const { namespace = "", name, resourceVersion } = snapshot.metadata;
    const lastTransitionTime = new Date(this.#ground.clock.nowMs()).toISOString();
    const ready = { type: "Ready", status: "True", reason: "SnapshotReady", message: "simulated", lastTransitionTime };
    const body = { metadata: { resourceVersion }, status: { nodeName: "node-1", conditions: [ready] } };
    await this.#client.patch(sandboxSnapshots, { namespace, name }, { type: "merge", body }, { subresource: "status" });
  }

  /** What has no object any more goes. */
  #forget(): void {
    const uids = new Set([...this.#ground.read(sandboxes), ...this.#ground.read(sandboxSnapshots)].map(uidOf));
    for (const kept of [this.files, this.snapshots])
      for (const uid of kept.keys()) if (!uids.has(uid)) kept.delete(uid);
  }
}

/** What a fault breaks off is done again in the next round. */
function ignoreFaults(error: unknown): void {
  if (!(error instanceof Error)) throw error;
}

function layerOf(sandboxUid: string) {
  return { key: keptLayerKey(sandboxUid, "main"), sizeBytes: 0, usedBytes: 0, mounted: false };
}
