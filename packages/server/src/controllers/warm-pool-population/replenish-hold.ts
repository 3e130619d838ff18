/**
 * Puts off refilling after claims took members, so that a burst of claims has the API to itself. State of one pool.
 */
export class ReplenishHold {
  readonly #delayMs: number;
  #lastCount: number | undefined;
  #deferUntilMs = 0;

  constructor(delayMs: number) {
    this.#delayMs = delayMs;
  }

  /** Called once per pass; how long creation must still wait. The first fill is never delayed, each drop re-arms. */
  remainingMs(count: number, desired: number, nowMs: number): number {
    if (this.#delayMs <= 0) return 0;
    const last = this.#lastCount;
    this.#lastCount = count;
    if (last === undefined) return 0;
    if (count >= desired) {
      this.#deferUntilMs = 0;
      return 0;
    }
    if (count < last) this.#deferUntilMs = nowMs + this.#delayMs;
    return Math.max(0, this.#deferUntilMs - nowMs);
  }

  /** Counts own creates, so that a cache that lags behind them reads as a drop instead of being missed. */
  created(count: number): void {
    if (this.#lastCount !== undefined) this.#lastCount += count;
  }
}
