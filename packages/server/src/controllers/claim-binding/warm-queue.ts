import type { Sandbox } from "@agent-sandbox/api";
import { controllerOf, isConditionTrue, keyOf, labelKeys, refersTo, sandboxWarmPools } from "@agent-sandbox/api";
import type { Candidate, Readiness } from "./pick-member.ts";

interface Entry extends Candidate {
  node: string;
  readiness: Readiness;
  /** The claim that is taking this member, and until when other claims are not offered it. */
  lease: { readonly claim: string; readonly untilMs: number } | undefined;
}

interface PoolQueue {
  readonly entries: Map<string, Entry>;
  /** Claims that wait for a member, in order of arrival. Bound: the claims of the pool. */
  readonly waiters: Set<string>;
}

/** Twice the deadline of a pass (30 s): a lease that is older belongs to a pass that ended without giving it back. */
const leaseMs = 60_000;

/** A member of a pool as far as labels, owner and deletion tell; readiness is no part of it, because it passes. */
export function isAdoptable(sandbox: Sandbox): boolean {
  const { deletionTimestamp, labels = {} } = sandbox.metadata;
  return (
    deletionTimestamp === undefined &&
    labels[labelKeys.warmPoolSandbox] !== undefined &&
    labels[labelKeys.templateRefHash] !== undefined &&
    refersTo(controllerOf(sandbox), sandboxWarmPools)
  );
}

/** How far the member is, by its status. Exported for tests. */
export function readinessOf({ status }: Sandbox): Readiness {
  if ((status?.podIPs ?? []).length === 0) return "pending";
  return isConditionTrue(status?.conditions, "Ready") ? "ready" : "networked";
}

/**
 * Unclaimed members by pool UID, fed by watch events. A claim leases a member instead of popping it, so that others see
 * what is really left. Bound: one entry per unclaimed member. Every operation is synchronous, hence atomic.
 */
export class WarmQueue {
  readonly #pools = new Map<string, PoolQueue>();
  readonly #wake: (claimKey: string) => void;

  /** `wake` is called with the key of a claim that should look again. */
  constructor(wake: (claimKey: string) => void) {
    this.#wake = wake;
  }

  /** Adds a member or takes over its new state; one that is no longer adoptable goes. */
  observe(sandbox: Sandbox): void {
    const key = keyOf(sandbox);
    const owner = controllerOf(sandbox);
    for (const [uid, pool] of this.#pools) if (uid !== owner?.uid) pool.entries.delete(key);
    if (owner === undefined) return;
    if (!isAdoptable(sandbox)) return void this.#pools.get(owner.uid)?.entries.delete(key);
    const pool = this.#open(owner.uid);
    const present = pool.entries.get(key);
    const node = sandbox.status?.nodeName ?? "";
    const readiness = readinessOf(sandbox);
    if (present === undefined) {
      const bornMs = Date.parse(sandbox.metadata.creationTimestamp ?? "");
      pool.entries.set(key, { key, bornMs: Number.isNaN(bornMs) ? 0 : bornMs, node, readiness, lease: undefined });
    } else {
      present.node = node;
      present.readiness = readiness;
    }
    if (readiness !== "pending") this.#dispatch(pool);
  }

  /** Drops a member that is gone, taken or unusable; its next event brings it back if it can be adopted. */
  remove(sandboxKey: string): void {
    for (const pool of this.#pools.values()) pool.entries.delete(sandboxKey);
  }

  /** Drops a pool that is gone with its members, and wakes the claims that wait for one. */
  removePool(poolUid: string): void {
    const pool = this.#pools.get(poolUid);
    this.#pools.delete(poolUid);
    for (const claim of pool?.waiters ?? []) this.#wake(claim);
  }

  /** The members that no claim has leased. */
  candidates(poolUid: string, nowMs: number): readonly Candidate[] {
    const free: Candidate[] = [];
    for (const entry of this.#pools.get(poolUid)?.entries.values() ?? []) if (isFree(entry, nowMs)) free.push(entry);
    return free;
  }

  /** Keeps a member for a claim. False when a claim has it already, or when it is no member any more. */
  lease(poolUid: string, sandboxKey: string, claim: string, nowMs: number): boolean {
    const entry = this.#pools.get(poolUid)?.entries.get(sandboxKey);
    if (entry === undefined || !isFree(entry, nowMs)) return false;
    entry.lease = { claim, untilMs: nowMs + leaseMs };
    return true;
  }

  /** Gives a member back, if this claim had it. */
  release(sandboxKey: string, claim: string): void {
    for (const pool of this.#pools.values()) {
      const entry = pool.entries.get(sandboxKey);
      if (entry?.lease?.claim !== claim) continue;
      entry.lease = undefined;
      this.#dispatch(pool);
    }
  }

  /** Registers a claim to be woken when a member can be taken. */
  wait(poolUid: string, claim: string): void {
    this.#open(poolUid).waiters.add(claim);
  }

  /** The claim waits no longer. */
  unwait(claim: string): void {
    for (const pool of this.#pools.values()) pool.waiters.delete(claim);
  }

  #open(poolUid: string): PoolQueue {
    const present = this.#pools.get(poolUid);
    if (present !== undefined) return present;
    const pool: PoolQueue = { entries: new Map(), waiters: new Set() };
    this.#pools.set(poolUid, pool);
    return pool;
  }

  /** Wakes as many waiters as there are members to take, first come first served. */
  #dispatch(pool: PoolQueue): void {
    let left = 0;
    for (const entry of pool.entries.values())
      if (entry.readiness !== "pending" && entry.lease === undefined) left += 1;
    for (const claim of pool.waiters) {
      if (left <= 0) return;
      left -= 1;
      this.#wake(claim);
    }
  }
}

function isFree({ lease }: Entry, nowMs: number): boolean {
  return lease === undefined || nowMs >= lease.untilMs;
}
