import type { StoreClock } from "../expiry.ts";

/** A clock that moves when told. */
export class ManualClock implements StoreClock {
  #nowMs = 1_000_000;
  readonly #timers = new Set<{ readonly dueMs: number; readonly fire: () => void }>();

  nowMs(): number {
    return this.#nowMs;
  }

  setTimer(delayMs: number, fire: () => void): () => void {
    const timer = { dueMs: this.#nowMs + delayMs, fire };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Fires what falls due, in order. */
  advance(byMs: number): void {
    const untilMs = this.#nowMs + byMs;
    for (;;) {
      const [next] = [...this.#timers].filter(({ dueMs }) => dueMs <= untilMs).sort((a, b) => a.dueMs - b.dueMs);
      if (next === undefined) break;
      this.#timers.delete(next);
      this.#nowMs = next.dueMs;
      next.fire();
    }
    this.#nowMs = untilMs;
  }
}
