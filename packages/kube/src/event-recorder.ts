import { isReasonOf, type KubeObject } from "@agent-sandbox/api";
import type { Client } from "./client.ts";
import type { Clock, Disposer } from "./clock.ts";
import { type EventForm, type EventNote, type EventReporter, eventsForm } from "./event-form.ts";
import { TokenBuckets } from "./token-bucket.ts";

/** What a recorder writes with, and in whose name. */
export interface EventRecorderOptions extends EventReporter {
  readonly client: Client;
  readonly clock: Clock;
  /** Default: events of `events.k8s.io/v1`. */
  readonly form?: EventForm;
  /** How long an event waits before it is written; what matters more goes first meanwhile. Default 0. */
  readonly lullMs?: number;
  /** Between 0 and 1; default `Math.random`. */
  readonly random?: () => number;
  /** An event that could not be written, or was dropped because too many wait. */
  readonly onError?: (error: unknown) => void;
}

interface Series {
  readonly event: KubeObject;
  count: number;
  lastMs: number;
  /** The count that the server knows of. */
  written: number;
  /** Resolves when the event itself is written, or has failed: counts come after it. */
  readonly begun: Promise<void>;
}

/** As in client-go: what repeats within this is one series. */
const seriesMs = 6 * 60_000;

/** Counts of a series are written at once for its second event and then at most this often. */
const flushMs = 60_000;

/** Bound of the series remembered; the oldest is forgotten, and its next event starts another series. */
const seriesMax = 4_096;

/** Bound of the writes that wait; what comes beyond it is dropped, because events are a courtesy. */
const writesMax = 1_000;

/** Events about one object for one reason, repetitions aside; client-go's figures. What a program in a loop makes happen would else crowd out the rest. */
const perObject = { burst: 25, perSecond: 1 / 300 };

/** Writes under way at once: a burst of events is out in seconds also over a slow network, and leaves most of an API server's requests in flight to others. */
const writersMax = 8;

/** Writes Events in the background and folds repetitions into series. Never throws. */
export class EventRecorder {
  readonly #options: EventRecorderOptions;
  readonly #client: Client;
  readonly #series = new Map<string, Series>();
  readonly #writes: Array<() => Promise<unknown>> = [];
  readonly #writers = new Set<Promise<void>>();
  /** Since the last one that was written; reported as one error, because a log line for each would make a bad moment worse. */
  #dropped = 0;
  readonly #form: EventForm;
  readonly #rate = new TokenBuckets(perObject);
  #disposeFlush: Disposer | undefined;
  #disposeLull: Disposer | undefined;

  constructor(options: EventRecorderOptions) {
    this.#options = options;
    this.#client = options.client.at("background");
    this.#form = options.form ?? eventsForm;
  }

  /** Whether anything waits to be written. */
  get idle(): boolean {
    return this.#writers.size === 0 && this.#writes.length === 0;
  }

  /** Notes an event; it is written in the background. */
  record(note: EventNote): void {
    const key = this.#form.keyOf(note);
    const nowMs = this.#options.clock.nowMs();
    const series = this.#series.get(key);
    if (series === undefined || nowMs - series.lastMs > seriesMs) {
      if (this.#rate.tryTake(subjectOf(note), nowMs)) this.#start(key, note, nowMs);
      return;
    }
    series.count += 1;
    series.lastMs = nowMs;
    if (series.count === 2) this.#enqueue(() => this.#writeCount(key, series));
    else this.#disposeFlush ??= this.#options.clock.setTimer(flushMs, () => this.#flush());
  }

  /** Writes what is left; resolves when it is out or has failed. */
  async close(): Promise<void> {
    this.#disposeFlush?.();
    this.#flush();
    this.#beginWriting();
    await Promise.all(this.#writers);
  }

  #start(key: string, note: EventNote, nowMs: number): void {
    const event = this.#eventOf(note, nowMs);
    this.#series.delete(key);
    const { promise: begun, resolve } = Promise.withResolvers<void>();
    this.#series.set(key, { event, count: 1, lastMs: nowMs, written: 1, begun });
    if (this.#series.size > seriesMax) {
      const [oldest] = this.#series.keys();
      this.#series.delete(oldest as string);
    }
    const isQueued = this.#enqueue(() => this.#client.create(this.#form.resource, event).finally(resolve));
    if (!isQueued) this.#series.delete(key);
  }

  #flush(): void {
    this.#disposeFlush = undefined;
    for (const [key, series] of this.#series) {
      if (series.written < series.count) this.#enqueue(() => this.#writeCount(key, series));
    }
  }

  async #writeCount(key: string, series: Series): Promise<void> {
    const { namespace = "default", name } = series.event.metadata;
    await series.begun;
    const { count } = series;
    const body = this.#form.countOf(count, series.lastMs);
    try {
      await this.#client.patch(this.#form.resource, { namespace, name }, { type: "merge", body });
      series.written = count;
    } catch (error) {
      // The event has lived its hour, or was never written: the next one begins a series.
      this.#series.delete(key);
      if (!isReasonOf(error, "NotFound")) throw error;
    }
  }

  /** False when too many wait already. */
  #enqueue(write: () => Promise<unknown>): boolean {
    if (this.#writes.length >= writesMax) {
      this.#dropped += 1;
      return false;
    }
    this.#writes.push(write);
    const { lullMs = 0, clock } = this.#options;
    if (lullMs === 0) this.#beginWriting();
    else this.#disposeLull ??= clock.setTimer(lullMs, () => this.#beginWriting());
    return true;
  }

  #beginWriting(): void {
    this.#disposeLull?.();
    this.#disposeLull = undefined;
    for (let free = writersMax - this.#writers.size; free > 0 && this.#writes.length > 0; free -= 1) {
      const writer = this.#write().finally(() => this.#writers.delete(writer));
      this.#writers.add(writer);
    }
  }

  async #write(): Promise<void> {
    for (let write = this.#writes.shift(); write !== undefined; write = this.#writes.shift()) {
      await write().catch((error: unknown) => this.#options.onError?.(error));
      if (this.#dropped > 0 && this.#writes.length < writesMax / 2) this.#reportDropped();
    }
  }

  #reportDropped(): void {
    const dropped = this.#dropped;
    this.#dropped = 0;
    this.#options.onError?.(new Error(`${dropped} events dropped: ${writesMax} waited to be written`));
  }

  #eventOf(note: EventNote, nowMs: number): KubeObject {
    const { reportingController, reportingInstance, random = Math.random } = this.#options;
    const unique =
      nowMs.toString(16) +
      Math.floor(random() * 0x10000)
        .toString(16)
        .padStart(4, "0");
    const name = `${note.regarding.metadata.name}.${unique}`;
    return this.#form.eventOf(note, { name, nowMs, reportingController, reportingInstance });
  }
}

function subjectOf({ regarding: { kind, metadata }, reason }: EventNote): string {
  return `${reason} ${metadata.uid ?? `${kind} ${metadata.namespace ?? ""}/${metadata.name}`}`;
}
