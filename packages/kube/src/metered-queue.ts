import type { QueueMeter } from "./controller-telemetry.ts";
import { type AddOptions, WorkQueue, type WorkQueueOptions } from "./work-queue.ts";

/** A work queue that tells a meter what goes through it. */
export class MeteredQueue<K = string> extends WorkQueue<K> {
  readonly #clock: WorkQueueOptions["clock"];
  readonly #meter: QueueMeter;
  /** When each key that is to be worked on was first added. Bound: the keys of the queue. */
  readonly #addedMs = new Map<K, number>();
  /** When the work on each key began. Bound: the workers. */
  readonly #takenMs = new Map<K, number>();

  constructor({ meter, ...options }: WorkQueueOptions & { readonly meter: QueueMeter }) {
    super(options);
    this.#clock = options.clock;
    this.#meter = meter;
  }

  override add(key: K, options: AddOptions = {}): void {
    if (!this.#addedMs.has(key)) {
      this.#addedMs.set(key, this.#clock.nowMs());
      this.#meter.keyAdded();
    }
    super.add(key, options);
  }

  override retry(key: K, options: { readonly delayMinMs?: number } = {}): number {
    this.#meter.keyRetried();
    return super.retry(key, options);
  }

  override async take(signal: AbortSignal): Promise<K> {
    const key = await super.take(signal);
    const nowMs = this.#clock.nowMs();
    this.#meter.keyTaken(nowMs - (this.#addedMs.get(key) ?? nowMs));
    this.#addedMs.delete(key);
    this.#takenMs.set(key, nowMs);
    return key;
  }

  override done(key: K): void {
    const nowMs = this.#clock.nowMs();
    this.#meter.keyDone(nowMs - (this.#takenMs.get(key) ?? nowMs));
    this.#takenMs.delete(key);
    super.done(key);
  }

  override close(): void {
    this.#addedMs.clear();
    super.close();
  }

  /** For how long each key under way has been worked on. */
  workingSeconds(): number[] {
    const nowMs = this.#clock.nowMs();
    return [...this.#takenMs.values()].map((sinceMs) => (nowMs - sinceMs) / 1000);
  }
}
