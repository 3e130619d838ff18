/** What a token bucket gave. */
export interface Grant {
  readonly granted: number;
  /** Set when less was granted than wanted: when the next token is there. */
  readonly waitMs?: number;
}

/** Token bucket of one pool: starts full, holds `max(1, rate)` tokens, gains `rate` tokens a second. */
export class RefillRate {
  readonly #rate: number;
  #tokens: number;
  #countedMs: number;

  constructor(rate: number, nowMs: number) {
    this.#rate = rate;
    this.#tokens = this.#capacity;
    this.#countedMs = nowMs;
  }

  get #capacity(): number {
    return Math.max(1, this.#rate);
  }

  /** Takes up to `wanted` whole tokens. A rate of 0 means no limit. */
  take(wanted: number, nowMs: number): Grant {
    if (this.#rate <= 0) return { granted: wanted };
    this.#tokens = Math.min(this.#capacity, this.#tokens + ((nowMs - this.#countedMs) / 1000) * this.#rate);
    this.#countedMs = nowMs;
    const granted = Math.max(0, Math.min(wanted, Math.floor(this.#tokens)));
    this.#tokens -= granted;
    if (granted === wanted) return { granted };
    return { granted, waitMs: Math.ceil(((1 - this.#tokens) / this.#rate) * 1000) };
  }

  /** Gives tokens back that were not used. */
  refund(count: number): void {
    if (this.#rate > 0) this.#tokens = Math.min(this.#capacity, this.#tokens + count);
  }
}
