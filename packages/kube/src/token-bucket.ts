/** How often holders may do something. */
export interface TokenBucketsOptions {
  readonly perSecond: number;
  /** How many at once after a pause. */
  readonly burst: number;
  /** Holders remembered. Full: the one remembered longest is forgotten, which gives it a full bucket. Default 4096. */
  readonly holdersMax?: number;
}

/** A rate for each of many holders, so that one that does something endlessly costs a fixed amount. */
export class TokenBuckets {
  readonly #options: TokenBucketsOptions;
  readonly #buckets = new Map<string, { tokens: number; atMs: number }>();

  constructor(options: TokenBucketsOptions) {
    this.#options = options;
  }

  /** Takes one of the holder's; false where it has none left for now. */
  tryTake(holder: string, nowMs: number): boolean {
    const { perSecond, burst, holdersMax = 4096 } = this.#options;
    let bucket = this.#buckets.get(holder);
    if (bucket === undefined) {
      if (this.#buckets.size >= holdersMax) {
        const [oldest] = this.#buckets.keys();
        if (oldest !== undefined) this.#buckets.delete(oldest);
      }
      bucket = { tokens: burst, atMs: nowMs };
      this.#buckets.set(holder, bucket);
    }
    bucket.tokens = Math.min(burst, bucket.tokens + (Math.max(0, nowMs - bucket.atMs) / 1000) * perSecond);
    bucket.atMs = nowMs;
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  }
}
