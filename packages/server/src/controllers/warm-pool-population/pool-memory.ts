import { RefillRate } from "./refill-rate.ts";
import { ReplenishHold } from "./replenish-hold.ts";

/** What is remembered of one pool between passes; after a restart it begins afresh, and no pass is wrong without it. */
export interface PoolMemory {
  readonly uid: string;
  readonly hold: ReplenishHold;
  readonly rate: RefillRate;
  /** Names of members whose create was not answered. Bound: the batch size. */
  readonly unresolved: Set<string>;
  notProgressing: boolean;
  /** When the status was last written. */
  statusWrittenMs: number;
}

/** Opens the memory of a pool. */
export function openPoolMemory(
  uid: string,
  { replenishDelayMs, refillRate }: { replenishDelayMs: number; refillRate: number },
  nowMs: number,
): PoolMemory {
  return {
    uid,
    hold: new ReplenishHold(replenishDelayMs),
    rate: new RefillRate(refillRate, nowMs),
    unresolved: new Set(),
    notProgressing: false,
    statusWrittenMs: Number.NEGATIVE_INFINITY,
  };
}
