import { setImmediate } from "node:timers/promises";
import type { Clock, Disposer } from "../clock.ts";

interface Timer {
  readonly dueMs: number;
  readonly order: number;
  readonly fire: () => void;
}

/** How `settled` decides that nothing is left to do. */
export interface SettledOptions {
  /** Each says whether its part of the world has work under way, for example `() => !queue.idle`. */
  readonly busy?: ReadonlyArray<() => boolean>;
  /** Turns of the event loop that must pass in silence; default 10. */
  readonly quietTurns?: number;
  /** Turns after which the world is declared restless and the promise rejects; default 100,000. */
  readonly turnsMax?: number;
}

/**
 * A clock that stands still until told. Quiescence is measured, not guessed by sleeping: every use of the clock is a
 * sign of life, and so is every part that says it is busy.
 */
export class FakeClock implements Clock {
  #nowMs: number;
  #order = 0;
  #activity = 0;
  readonly #timers = new Set<Timer>();

  /** Default: 2026-01-01T00:00:00Z. */
  constructor(nowMs = Date.UTC(2026, 0, 1)) {
    this.#nowMs = nowMs;
  }

  /** Timers that have not fired. */
  get timers(): number {
    return this.#timers.size;
  }

  /** When the next timer is due, if there is one. */
  get nextDueMs(): number | undefined {
    return this.#next()?.dueMs;
  }

  nowMs(): number {
    this.#activity += 1;
    return this.#nowMs;
  }

  setTimer(delayMs: number, fire: () => void): Disposer {
    this.#activity += 1;
    this.#order += 1;
    const timer = { dueMs: this.#nowMs + Math.max(0, delayMs), order: this.#order, fire };
    this.#timers.add(timer);
    return () => {
      if (this.#timers.delete(timer)) this.#activity += 1;
    };
  }

  /** Moves time on, firing timers in order; before each one and at the end, everything is let settle. */
  async advance(byMs: number, options: SettledOptions = {}): Promise<void> {
    const untilMs = this.#nowMs + byMs;
    for (;;) {
      await this.settled(options);
      const timer = this.#next();
      if (timer === undefined || timer.dueMs > untilMs) break;
      this.#nowMs = timer.dueMs;
      this.#timers.delete(timer);
      this.#activity += 1;
      timer.fire();
    }
    this.#nowMs = untilMs;
    await this.settled(options);
  }

  /** Resolves once nothing has touched the clock and no part said that it was busy, for a number of turns of the event loop. */
  async settled({ busy = [], quietTurns = 10, turnsMax = 100_000 }: SettledOptions = {}): Promise<void> {
    let seen = this.#activity;
    let quiet = 0;
    for (let turn = 0; quiet < quietTurns; turn += 1) {
      if (turn === turnsMax) throw new Error(`the world did not settle within ${turnsMax} turns of the event loop`);
      await setImmediate();
      const silent = seen === this.#activity && !busy.some((isBusy) => isBusy());
      quiet = silent ? quiet + 1 : 0;
      seen = this.#activity;
    }
  }

  #next(): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this.#timers) {
      if (next === undefined || timer.dueMs < next.dueMs || (timer.dueMs === next.dueMs && timer.order < next.order)) {
        next = timer;
      }
    }
    return next;
  }
}
