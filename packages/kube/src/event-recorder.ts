import { type EventsEvent, events, isReasonOf, type KubeObject } from "@agent-sandbox/api";
import type { Client } from "./client.ts";
import type { Clock, Disposer } from "./clock.ts";
import { microTime } from "./leader-election.ts";

/** Who reports. */
export interface EventRecorderOptions {
  readonly client: Client;
  readonly clock: Clock;
  /** For example `agent-sandbox.dev/sandbox-controller`. */
  readonly reportingController: string;
  /** For example the pod's or the host's name. */
  readonly reportingInstance: string;
  /** Between 0 and 1; default `Math.random`. */
  readonly random?: () => number;
  /** An event that could not be written, or was dropped because too many wait. */
  readonly onError?: (error: unknown) => void;
}

/** Something worth telling the user of an object. */
export interface EventNote {
  readonly regarding: KubeObject;
  readonly related?: KubeObject;
  readonly type: "Normal" | "Warning";
  /** In CamelCase, of a closed set. */
  readonly reason: string;
  /** What was done or tried, in CamelCase. */
  readonly action: string;
  readonly note: string;
}

interface Series {
  readonly event: EventsEvent;
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

/** Writes under way at once: a burst of events is out in seconds also over a slow network, and crowds nobody out. */
const writersMax = 8;

/** The longest note that servers take. */
const noteMax = 1_024;

/** Writes Events of `events.k8s.io/v1` in the background and folds repetitions into series. Never throws. */
export class EventRecorder {
  readonly #options: EventRecorderOptions;
  readonly #series = new Map<string, Series>();
  readonly #writes: Array<() => Promise<unknown>> = [];
  readonly #writers = new Set<Promise<void>>();
  /** Since the last one that was written; reported as one error, because a log line for each would make a bad moment worse. */
  #dropped = 0;
  #disposeFlush: Disposer | undefined;

  constructor(options: EventRecorderOptions) {
    this.#options = options;
  }

  /** Whether anything waits to be written. */
  get idle(): boolean {
    return this.#writers.size === 0;
  }

  /** Notes an event; it is written in the background. */
  record(note: EventNote): void {
    const key = seriesKey(note);
    const nowMs = this.#options.clock.nowMs();
    const series = this.#series.get(key);
    if (series === undefined || nowMs - series.lastMs > seriesMs) {
      this.#start(key, note, nowMs);
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
    const isQueued = this.#enqueue(() => this.#options.client.create(events, event).finally(resolve));
    if (!isQueued) this.#series.delete(key);
  }

  #flush(): void {
    this.#disposeFlush = undefined;
    for (const [key, series] of this.#series) {
      if (series.written < series.count) this.#enqueue(() => this.#writeCount(key, series));
    }
  }

  async #writeCount(key: string, series: Series): Promise<void> {
    const { client } = this.#options;
    const { namespace = "default", name } = series.event.metadata;
    await series.begun;
    const { count } = series;
    const body = { series: { count, lastObservedTime: microTime(series.lastMs) } };
    try {
      await client.patch(events, { namespace, name }, { type: "merge", body });
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
    if (this.#writers.size < writersMax) {
      const writer = this.#write().finally(() => this.#writers.delete(writer));
      this.#writers.add(writer);
    }
    return true;
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

  #eventOf({ regarding, related, type, reason, action, note }: EventNote, nowMs: number): EventsEvent {
    const { reportingController, reportingInstance, random = Math.random } = this.#options;
    const unique =
      nowMs.toString(16) +
      Math.floor(random() * 0x10000)
        .toString(16)
        .padStart(4, "0");
    return {
      apiVersion: "events.k8s.io/v1",
      kind: "Event",
      metadata: { name: `${regarding.metadata.name}.${unique}`, namespace: regarding.metadata.namespace ?? "default" },
      eventTime: microTime(nowMs),
      type,
      reason,
      action,
      note: note.length > noteMax ? `${note.slice(0, noteMax - 3)}...` : note,
      regarding: referenceTo(regarding),
      ...(related !== undefined && { related: referenceTo(related) }),
      reportingController,
      reportingInstance,
    };
  }
}

function referenceTo({ apiVersion, kind, metadata }: KubeObject): NonNullable<EventsEvent["regarding"]> {
  const { name, namespace, uid, resourceVersion } = metadata;
  return {
    apiVersion,
    kind,
    name,
    ...(namespace !== undefined && { namespace }),
    ...(uid !== undefined && { uid }),
    ...(resourceVersion !== undefined && { resourceVersion }),
  };
}

/** The note does not count: it often carries what changes between repetitions. */
function seriesKey({ regarding, related, type, reason, action }: EventNote): string {
  const { namespace, name, uid } = regarding.metadata;
  return JSON.stringify([regarding.kind, namespace, name, uid, related?.metadata.uid, type, reason, action]);
}
