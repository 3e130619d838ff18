import { type AddOptions, type Clock, WorkQueue } from "@agent-sandbox/kube";
import type { ControllerMetrics } from "./controller-metrics.ts";

/** What a metered queue is made of. */
export interface MeteredQueueOptions {
  readonly name: string;
  readonly clock: Clock;
  readonly random: () => number;
  readonly metrics: ControllerMetrics;
}

/** A work queue that counts what goes through it, under the names that dashboards of Kubernetes controllers know. */
export class MeteredQueue extends WorkQueue<string> {
  readonly #labels: { readonly name: string; readonly controller: string };
  readonly #clock: Clock;
  readonly #metrics: ControllerMetrics;
  /** When each key that is to be worked on was first added. Bound: the keys of the queue. */
  readonly #addedMs = new Map<string, number>();
  /** When the work on each key began. Bound: the workers. */
  readonly #takenMs = new Map<string, number>();

  constructor({ name, clock, random, metrics }: MeteredQueueOptions) {
    super({ clock, random });
    this.#labels = { name, controller: name };
    this.#clock = clock;
    this.#metrics = metrics;
  }

  override add(key: string, options: AddOptions = {}): void {
    if (!this.#addedMs.has(key)) {
      this.#addedMs.set(key, this.#clock.nowMs());
      this.#metrics.queueAdds.inc(this.#labels);
    }
    super.add(key, options);
  }

  override retry(key: string, options: { readonly delayMinMs?: number } = {}): number {
    this.#metrics.queueRetries.inc(this.#labels);
    return super.retry(key, options);
  }

  override async take(signal: AbortSignal): Promise<string> {
    const key = await super.take(signal);
    const nowMs = this.#clock.nowMs();
    this.#metrics.queueSeconds.observe(this.#labels, (nowMs - (this.#addedMs.get(key) ?? nowMs)) / 1000);
    this.#addedMs.delete(key);
    this.#takenMs.set(key, nowMs);
    return key;
  }

  override done(key: string): void {
    const nowMs = this.#clock.nowMs();
    this.#metrics.workSeconds.observe(this.#labels, (nowMs - (this.#takenMs.get(key) ?? nowMs)) / 1000);
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
