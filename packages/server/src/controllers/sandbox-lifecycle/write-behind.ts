/**
 * Remembers when a pending write was first wanted, and nothing of the write itself.
 * Bound: one entry per Sandbox with a pending change.
 */
export class WriteBehind {
  readonly #windowMs: number;
  readonly #since = new Map<string, number>();

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  /** How long the write may still wait: 0 means now. Later calls do not restart the window. */
  remainingMs(key: string, nowMs: number): number {
    if (this.#windowMs <= 0) return 0;
    const since = this.#since.get(key) ?? nowMs;
    this.#since.set(key, since);
    return Math.max(0, since + this.#windowMs - nowMs);
  }

  /** The change is written, gone, or its Sandbox is. */
  clear(key: string): void {
    this.#since.delete(key);
  }

  /** Pending changes. */
  get size(): number {
    return this.#since.size;
  }
}
