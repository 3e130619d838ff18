import type { Pod } from "@agent-sandbox/api";
import { type Client, type Clock, coreForm, EventRecorder as KubeEventRecorder } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";

/** Something worth telling the owner of a pod. */
export interface Incident {
  readonly object: Pod;
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly message: string;
  /** For example `spec.containers{main}`. */
  readonly fieldPath?: string;
}

/** Tells owners of pods what became of them, in the background; never fails its caller. */
export interface EventRecorder {
  record(incident: Incident): void;
  /** Resolves when everything recorded so far is written. */
  flushed(): Promise<void>;
}

/** How long an incident waits: the pod's own start and status writes go first, and both need the same processors. */
const lullMs = 100;

/** Opens the recorder of a node, which writes as the kubelet does. */
export function openEventRecorder(parts: {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly nodeName: string;
}): EventRecorder {
  const { client, clock, logger, nodeName } = parts;
  const recorder = new KubeEventRecorder({
    client,
    clock,
    form: coreForm,
    lullMs,
    reportingController: "kubelet",
    reportingInstance: nodeName,
    onError: (error) => logger.debug({ err: error }, "event not written"),
  });
  return {
    record: ({ object, message, ...rest }) =>
      recorder.record({ ...rest, regarding: object, action: rest.reason, note: message }),
    flushed: () => recorder.close(),
  };
}
