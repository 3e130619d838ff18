import type { KubeObject } from "@agent-sandbox/api";
import { events } from "@agent-sandbox/api";
import type { Client, Clock } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";

/** One thing that happened to an object, for people who read `kubectl describe`. */
export interface EventNote {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly action: string;
  readonly note: string;
}

/** Writes Events behind the caller's back: an Event that fails is logged and changes nothing else. */
export interface EventRecorder {
  record(regarding: KubeObject, event: EventNote): void;
  /** Resolves when no Event is being written. */
  flushed(): Promise<void>;
}

/** What a recorder needs; `reportingController` says who speaks. */
export interface EventRecorderOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly reportingController: string;
}

/** Events in flight at most; a burst beyond it is dropped, because Events must never slow a controller down. */
const inFlightMax = 500;

/** The API refuses longer notes. */
const noteMaxLength = 1024;

/** Opens a recorder. */
export function openEventRecorder(options: EventRecorderOptions): EventRecorder {
  const inFlight = new Set<Promise<void>>();
  return {
    record(regarding, event) {
      if (inFlight.size >= inFlightMax) {
        options.logger.warn(
          { reason: event.reason, name: regarding.metadata.name },
          "event dropped: too many in flight",
        );
        return;
      }
      const write = writeEvent(options, regarding, event).finally(() => inFlight.delete(write));
      inFlight.add(write);
    },
    async flushed() {
      await Promise.all(inFlight);
    },
  };
}

async function writeEvent(options: EventRecorderOptions, regarding: KubeObject, event: EventNote): Promise<void> {
  const { client, clock, logger, random, reportingController } = options;
  const { name, namespace = "default", uid } = regarding.metadata;
  const suffix = Math.floor(random() * 2 ** 48)
    .toString(16)
    .padStart(12, "0");
  const eventTime = new Date(clock.nowMs()).toISOString().replace("Z", "000Z");
  try {
    await client.create(events, {
      apiVersion: "events.k8s.io/v1",
      kind: "Event",
      metadata: { name: `${name.slice(0, 240)}.${suffix}`, namespace },
      eventTime,
      reportingController,
      reportingInstance: reportingController,
      type: event.type,
      reason: event.reason,
      action: event.action,
      note: event.note.slice(0, noteMaxLength),
      regarding: {
        apiVersion: regarding.apiVersion,
        kind: regarding.kind,
        name,
        namespace,
        ...(uid === undefined ? {} : { uid }),
      },
    });
  } catch (error) {
    logger.warn({ err: error, reason: event.reason, key: `${namespace}/${name}` }, "event not written");
  }
}
