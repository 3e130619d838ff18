import { coreEvents, type Event, type KubeObject } from "@agent-sandbox/api";
import type { Client, Clock, Disposer } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";

/** Something worth telling the owner of an object. */
export interface Incident {
  readonly object: KubeObject;
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly message: string;
  /** For example `spec.containers{main}`. */
  readonly fieldPath?: string;
}

/** The recorder's parts. */
export interface EventRecorderOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly nodeName: string;
  readonly newId: () => string;
  readonly signal: AbortSignal;
}

/** Incidents waiting to be written. Full: the newest is dropped and counted, because events are a courtesy. */
const queueMax = 1000;

/** How long an incident waits: what happens to a pod goes before what is told about it, and both need the same processors. */
const lullMs = 100;

/** Distinct incidents remembered for counting; the oldest is forgotten first. */
const rememberedMax = 4096;

/** Longest message; the API server's limit. */
const messageLengthMax = 1024;

interface Remembered {
  readonly name: string;
  readonly namespace: string;
  count: number;
}

/**
 * Writes Events as the kubelet does: of the core API, because that is the one nodes may write on a cluster; a repeated one raises the count of
 * the first. Everybody else records through `EventRecorder` of kube. Never fails its caller.
 */
export class EventRecorder {
  readonly #options: EventRecorderOptions;
  readonly #queue: Incident[] = [];
  readonly #remembered = new Map<string, Remembered>();
  #writing: Promise<void> | undefined;
  #lull: Disposer | undefined;

  constructor(options: EventRecorderOptions) {
    this.#options = options;
  }

  record(incident: Incident): void {
    if (this.#queue.length >= queueMax) {
      this.#options.logger.warn({ reason: incident.reason }, "event dropped: the queue is full");
      return;
    }
    this.#queue.push(incident);
    this.#lull ??= this.#options.clock.setTimer(lullMs, () => this.#begin());
  }

  /** Resolves when everything recorded so far is written. */
  async flushed(): Promise<void> {
    this.#begin();
    await this.#writing;
  }

  #begin(): void {
    this.#lull?.();
    this.#lull = undefined;
    this.#writing ??= this.#drain().finally(() => {
      this.#writing = undefined;
    });
  }

  async #drain(): Promise<void> {
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      if (this.#options.signal.aborted) return;
      try {
        await this.#write(next);
      } catch (error) {
        this.#options.logger.debug({ err: error, reason: next.reason }, "event not written");
      }
    }
  }

  async #write(incident: Incident): Promise<void> {
    const { client, clock, signal } = this.#options;
    const { object, reason, message, type } = incident;
    const key = [object.metadata.uid, type, reason, incident.fieldPath, message].join("\n");
    const known = this.#remembered.get(key);
    const now = new Date(clock.nowMs()).toISOString().replace(/\.\d+Z$/, "Z");
    if (known !== undefined) {
      known.count += 1;
      const body = { count: known.count, lastTimestamp: now };
      await client.patch(coreEvents, known, { type: "merge", body }, { signal });
      return;
    }
    const event = this.#newEvent(incident, now);
    await client.create(coreEvents, event, { signal });
    if (this.#remembered.size >= rememberedMax) {
      const [oldest] = this.#remembered.keys();
      if (oldest !== undefined) this.#remembered.delete(oldest);
    }
    this.#remembered.set(key, {
      name: event.metadata.name,
      namespace: event.metadata.namespace ?? "default",
      count: 1,
    });
  }

  #newEvent({ object, type, reason, message, fieldPath }: Incident, now: string): Event {
    const { nodeName, newId } = this.#options;
    const { namespace = "default", name, uid, resourceVersion } = object.metadata;
    return {
      apiVersion: "v1",
      kind: "Event",
      metadata: { name: `${name}.${newId()}`, namespace },
      involvedObject: {
        apiVersion: object.apiVersion,
        kind: object.kind,
        name,
        ...(object.metadata.namespace !== undefined && { namespace }),
        ...(uid !== undefined && { uid }),
        ...(resourceVersion !== undefined && { resourceVersion }),
        ...(fieldPath !== undefined && { fieldPath }),
      },
      type,
      reason,
      message: message.slice(0, messageLengthMax),
      source: { component: "kubelet", host: nodeName },
      reportingComponent: "kubelet",
      reportingInstance: nodeName,
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    };
  }
}
