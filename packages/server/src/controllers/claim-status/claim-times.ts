/** What the process remembers of a claim, for latency metrics. */
export interface ClaimTimes {
  readonly uid: string;
  readonly firstSeenMs: number;
  /** The claim was Ready once in the sight of this process: it is measured once in its life. */
  measured: boolean;
}

/** First sight of claims by `namespace/name`, guarded by UID. Bound: one entry per claim. */
export class ClaimClock {
  readonly #times = new Map<string, ClaimTimes>();

  /** Remembers the first sight; a namesake with another UID starts afresh. */
  seen(key: string, uid: string, nowMs: number, measured: boolean): ClaimTimes {
    const present = this.#times.get(key);
    if (present?.uid === uid) {
      present.measured ||= measured;
      return present;
    }
    const times = { uid, firstSeenMs: nowMs, measured };
    this.#times.set(key, times);
    return times;
  }

  /** Forgets a claim, unless a younger one has its name already. */
  forget(key: string, uid?: string): void {
    if (uid === undefined || this.#times.get(key)?.uid === uid) this.#times.delete(key);
  }

  /** Remembered claims. */
  get size(): number {
    return this.#times.size;
  }
}
