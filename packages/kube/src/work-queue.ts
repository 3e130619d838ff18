import { type BackoffOptions, backoffMs, passBackoff } from "./backoff.ts";
import type { Clock, Disposer } from "./clock.ts";

/** What a queue needs from outside. */
export interface WorkQueueOptions {
  readonly clock: Clock;
  /** Between 0 and 1; default `Math.random`. */
  readonly random?: () => number;
  /** Default 5 ms doubling to 60 s. */
  readonly backoff?: BackoffOptions;
}

/** How to add a key. */
export interface AddOptions {
  /** Greater goes first; default 0. Strict: a lower one waits for as long as there is a higher one. */
  readonly priority?: number;
}

/** The priority of keys that only a first list brought up: after a restart, what changes goes before what was there. */
export const initialListPriority = -100;

interface Waiting {
  readonly dueMs: number;
  readonly priority: number;
  readonly dispose: Disposer;
}

interface Taker<K> {
  readonly signal: AbortSignal;
  readonly resolve: (key: K) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Keys to work on, each at most once at a time. Keys are compared as `Map` does, so they should be strings.
 * Bound: one entry per distinct key, hence the number of objects watched; adding a key that is there already merges.
 *
 * Invariant: a key that was taken is not handed out again before `done`.
 * Invariant: a key added while it is being worked on is handed out again after `done`.
 */
export class WorkQueue<K = string> {
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #backoff: BackoffOptions;
  readonly #ready = new Map<K, number>();
  /** The ready keys by priority, each set in the order of arrival. */
  readonly #lanes = new Map<number, Set<K>>();
  readonly #working = new Set<K>();
  /** Keys added while being worked on, with their priority. */
  readonly #dirty = new Map<K, number>();
  readonly #waiting = new Map<K, Waiting>();
  readonly #failures = new Map<K, number>();
  readonly #takers: Taker<K>[] = [];
  /** One listener per signal, however many takers share it: a signal looks through its listeners at every change. */
  readonly #takerSignals = new Map<AbortSignal, { takers: number; readonly onAbort: () => void }>();
  readonly #idleWaiters: Array<() => void> = [];
  #closed = false;

  constructor({ clock, random = Math.random, backoff = passBackoff }: WorkQueueOptions) {
    this.#clock = clock;
    this.#random = random;
    this.#backoff = backoff;
  }

  /** Keys that are ready to be taken. */
  get length(): number {
    return this.#ready.size;
  }

  /** Keys that wait for a time. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Nothing is ready and nothing is being worked on; keys that wait for a time do not count. */
  get idle(): boolean {
    return this.#ready.size === 0 && this.#working.size === 0;
  }

  /** Makes a key ready. */
  add(key: K, { priority = 0 }: AddOptions = {}): void {
    if (this.#closed) return;
    if (this.#working.has(key)) {
      this.#dirty.set(key, Math.max(priority, this.#dirty.get(key) ?? priority));
      return;
    }
    const taker = this.#takers.shift();
    if (taker === undefined) return this.#enqueue(key, priority);
    this.#working.add(key);
    this.#leave(taker.signal);
    taker.resolve(key);
  }

  /** Makes a key ready after a while; of several waits for one key the earliest counts. */
  addAfter(key: K, delayMs: number, { priority = 0 }: AddOptions = {}): void {
    if (this.#closed) return;
    if (delayMs <= 0) return this.add(key, { priority });
    const dueMs = this.#clock.nowMs() + delayMs;
    const waiting = this.#waiting.get(key);
    if (waiting !== undefined && waiting.dueMs <= dueMs) return;
    waiting?.dispose();
    const dispose = this.#clock.setTimer(delayMs, () => {
      this.#waiting.delete(key);
      this.add(key, { priority });
    });
    this.#waiting.set(key, { dueMs, priority, dispose });
  }

  /** Makes a key ready after a wait that grows with each call until `forget`. Returns the wait. */
  retry(key: K, { delayMinMs = 0 }: { readonly delayMinMs?: number } = {}): number {
    const failures = this.#failures.get(key) ?? 0;
    this.#failures.set(key, failures + 1);
    const delayMs = Math.max(delayMinMs, backoffMs(failures, this.#backoff, this.#random));
    this.addAfter(key, delayMs);
    return delayMs;
  }

  /** How often in a row a key was retried. */
  failures(key: K): number {
    return this.#failures.get(key) ?? 0;
  }

  /** Resets the wait of `retry`; says nothing about whether the key is done. */
  forget(key: K): void {
    this.#failures.delete(key);
  }

  /** Waits for the next key and hands it out. Rejects with `signal.reason` when aborted. */
  take(signal: AbortSignal): Promise<K> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const key = this.#dequeue();
      if (key !== undefined) return resolve(key);
      this.#takers.push({ signal, resolve, reject });
      this.#join(signal);
    });
  }

  #join(signal: AbortSignal): void {
    const present = this.#takerSignals.get(signal);
    if (present !== undefined) {
      present.takers += 1;
      return;
    }
    const onAbort = (): void => {
      this.#takerSignals.delete(signal);
      const ended = this.#takers.filter((taker) => taker.signal === signal);
      this.#takers.splice(0, Number.POSITIVE_INFINITY, ...this.#takers.filter((taker) => taker.signal !== signal));
      for (const { reject } of ended) reject(signal.reason);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    this.#takerSignals.set(signal, { takers: 1, onAbort });
  }

  #leave(signal: AbortSignal): void {
    const present = this.#takerSignals.get(signal);
    if (present === undefined || --present.takers > 0) return;
    signal.removeEventListener("abort", present.onAbort);
    this.#takerSignals.delete(signal);
  }

  /** Ends the work on a key that was taken. */
  done(key: K): void {
    this.#working.delete(key);
    const priority = this.#dirty.get(key);
    if (priority !== undefined) {
      this.#dirty.delete(key);
      this.add(key, { priority });
    }
    if (this.idle) for (const wake of this.#idleWaiters.splice(0)) wake();
  }

  /** Resolves as soon as the queue is idle. */
  async drained(): Promise<void> {
    while (!this.idle) await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
  }

  /** Drops what is ready or waiting; later adds are ignored. Work under way goes on. */
  close(): void {
    this.#closed = true;
    for (const { dispose } of this.#waiting.values()) dispose();
    this.#waiting.clear();
    this.#ready.clear();
    this.#lanes.clear();
    this.#dirty.clear();
    this.#failures.clear();
    if (this.idle) for (const wake of this.#idleWaiters.splice(0)) wake();
  }

  #enqueue(key: K, priority: number): void {
    const present = this.#ready.get(key);
    if (present !== undefined) {
      if (present >= priority) return;
      this.#lanes.get(present)?.delete(key);
    }
    this.#ready.set(key, priority);
    let lane = this.#lanes.get(priority);
    if (lane === undefined) this.#lanes.set(priority, (lane = new Set()));
    lane.add(key);
  }

  #dequeue(): K | undefined {
    let best: number | undefined;
    for (const [priority, lane] of this.#lanes) {
      if (lane.size === 0) this.#lanes.delete(priority);
      else if (best === undefined || priority > best) best = priority;
    }
    if (best === undefined) return undefined;
    const [key] = this.#lanes.get(best) as Set<K>;
    this.#lanes.get(best)?.delete(key as K);
    this.#ready.delete(key as K);
    this.#working.add(key as K);
    return key;
  }
}
