import type { KubeObject } from "@agent-sandbox/api";
import {
  type Client,
  type Clock,
  type EventNote as KubeEventNote,
  EventRecorder as KubeEventRecorder,
} from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";

/** One thing that happened to an object, for people who read `kubectl describe`. */
export type EventNote = Pick<KubeEventNote, "type" | "reason" | "action" | "note">;

/** Writes Events without being awaited: one that fails is logged and changes nothing else. */
export interface EventRecorder {
  record(regarding: KubeObject, event: EventNote): void;
  /** Resolves when no Event is being written. */
  flushed(): Promise<void>;
}

/** What a recorder needs; `reportingController` is written into each Event. */
export interface EventRecorderOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly reportingController: string;
}

/** Opens a recorder that folds repetitions into series. */
export function openEventRecorder(options: EventRecorderOptions): EventRecorder {
  const { client, clock, logger, random, reportingController } = options;
  const onError = (error: unknown): void => logger.warn({ err: error }, "event not written");
  const shared = { client, clock, random, reportingController, reportingInstance: reportingController };
  const recorder = new KubeEventRecorder({ ...shared, onError });
  return {
    record: (regarding, event) => recorder.record({ regarding, ...event }),
    flushed: () => recorder.close(),
  };
}
