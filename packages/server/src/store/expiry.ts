/** A clock as the store needs it; the one of `packages/kube` fits. */
export interface StoreClock {
  nowMs(): number;
  setTimer(delayMs: number, fire: () => void): () => void;
}

/** Keys may outlive their time by this much; one sweep then covers everything that expires within it. */
const graceMs = 10_000;

interface Expiring {
  readonly revision: number;
  readonly atMs: number;
}

/**
 * Remembers when keys end and says so once they have.
 * Bound: one entry per key that was written with a time to live.
 */
export class Expiry {
  readonly #clock: StoreClock;
  readonly #onExpired: (key: string, revision: number) => void;
  readonly #keys = new Map<string, Expiring>();
  #timer: { readonly atMs: number; readonly dispose: () => void } | undefined;

  constructor(clock: StoreClock, onExpired: (key: string, revision: number) => void) {
    this.#clock = clock;
    this.#onExpired = onExpired;
  }

  /** Notes the newest version of a key; `atMs` 0 means that it stays. */
  set(key: string, revision: number, atMs: number): void {
    if (atMs === 0) {
      this.#keys.delete(key);
      return;
    }
    this.#keys.set(key, { revision, atMs });
    this.#arm(atMs);
  }

  /** Stops watching the time. */
  close(): void {
    this.#timer?.dispose();
    this.#keys.clear();
  }

  #arm(atMs: number): void {
    if (this.#timer !== undefined && this.#timer.atMs <= atMs + graceMs) return;
    this.#timer?.dispose();
    const delayMs = Math.max(0, atMs - this.#clock.nowMs()) + graceMs;
    this.#timer = { atMs: atMs + graceMs, dispose: this.#clock.setTimer(delayMs, () => this.#sweep()) };
  }

  #sweep(): void {
    this.#timer = undefined;
    const nowMs = this.#clock.nowMs();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const [key, { revision, atMs }] of this.#keys) {
      if (atMs > nowMs) nextMs = Math.min(nextMs, atMs);
      else {
        this.#keys.delete(key);
        this.#onExpired(key, revision);
      }
    }
    if (nextMs < Number.POSITIVE_INFINITY) this.#arm(nextMs);
  }
}
