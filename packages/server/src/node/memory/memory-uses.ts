import type { MemoryUse } from "@agent-sandbox/api";
import type { Clock } from "@agent-sandbox/kube";
import type { Host } from "../host/host.ts";
import { HostError } from "../host/host-error.ts";
import { afterSleep, afterWake, isMemoryNews, type MemoryQuestion } from "./plan-memory.ts";

/** The pod whose memory is looked at. */
export interface MemoryOwner {
  readonly uid: string;
  readonly cgroup: string;
}

/** What its pod says of it already, and whether it stands still. */
export type MemoryContext = Omit<MemoryQuestion, "residentBytes">;

/** How long a look is good for: looking at a thousand sandboxes costs about half a second of processor in node and helper together. */
const looksEveryMs = 60_000;

interface Look {
  readonly use: MemoryUse | undefined;
  readonly atMs: number;
}

/** What the pods of this node take of its memory, by uid, in the coarse steps in which it is said. Bound: the pods of this node. */
export class MemoryUses {
  readonly #host: Host;
  readonly #clock: Clock;
  readonly #looks = new Map<string, Look>();

  constructor(host: Host, clock: Clock) {
    this.#host = host;
    this.#clock = clock;
  }

  /** What is to be said; undefined where nothing is known, or what was said before stays. */
  of(uid: string): MemoryUse | undefined {
    return this.#looks.get(uid)?.use;
  }

  /** When a pod was looked at last, for those who choose whom to look at first. */
  lookedAtMs(uid: string): number {
    return this.#looks.get(uid)?.atMs ?? 0;
  }

  isDue(uid: string): boolean {
    return this.#clock.nowMs() >= this.lookedAtMs(uid) + looksEveryMs;
  }

  /** Reads what a pod takes; true where that is news. */
  async look({ uid, cgroup }: MemoryOwner, context: MemoryContext, signal: AbortSignal): Promise<boolean> {
    const begun = this.#looks.get(uid);
    const residentBytes = await this.resident(cgroup, signal);
    const isNews = residentBytes !== undefined && isMemoryNews({ ...context, residentBytes });
    const fresh = isNews ? await this.#measure(cgroup, signal) : undefined;
    // It fell asleep or woke meanwhile: what was said of that is younger.
    if (this.#looks.get(uid) !== begun) return false;
    const { said, isStill } = context;
    const { beforeSleepBytes } = (isStill ? said : undefined) ?? {};
    const use = fresh && { ...fresh, ...(beforeSleepBytes !== undefined && { beforeSleepBytes }) };
    this.#looks.set(uid, { use: use ?? begun?.use, atMs: this.#clock.nowMs() });
    return use !== undefined;
  }

  /** What is charged to a group; undefined where it is gone or the machine cannot tell. */
  async resident(cgroup: string, signal: AbortSignal): Promise<number | undefined> {
    try {
      const { workingSetBytes } = await this.#host.cgroupStats({ id: cgroup }, signal);
      return workingSetBytes === 0 ? undefined : workingSetBytes;
    } catch (error) {
      if (error instanceof HostError) return undefined;
      throw error;
    }
  }

  /** A pod has fallen asleep; before it did, this was resident. */
  async slept(
    { uid, cgroup }: MemoryOwner,
    { said, beforeBytes }: { readonly said: MemoryUse | undefined; readonly beforeBytes: number | undefined },
    signal: AbortSignal,
  ): Promise<void> {
    const known = this.of(uid) ?? said;
    const residentBytes = await this.resident(cgroup, signal);
    const use = residentBytes === undefined ? undefined : afterSleep({ known, residentBytes, beforeBytes });
    if (use !== undefined) this.#looks.set(uid, { use, atMs: this.#clock.nowMs() });
  }

  /** A pod is awake again: what it takes is read soon, and until then it is as it was. */
  woke({ uid }: Pick<MemoryOwner, "uid">, said: MemoryUse | undefined): void {
    const known = this.of(uid) ?? said;
    if (known !== undefined) this.#looks.set(uid, { use: afterWake(known), atMs: 0 });
  }

  forget(uid: string): void {
    this.#looks.delete(uid);
  }

  async #measure(id: string, signal: AbortSignal): Promise<MemoryUse | undefined> {
    try {
      const { workingSetBytes, sharedBytes } = await this.#host.cgroupStats({ id, shared: true }, signal);
      return { residentBytes: workingSetBytes, ...(sharedBytes !== undefined && { sharedBytes }) };
    } catch (error) {
      if (error instanceof HostError) return undefined;
      throw error;
    }
  }
}
