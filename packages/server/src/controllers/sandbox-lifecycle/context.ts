import type { Client, Clock, ControllerTelemetry } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { Caches } from "../caches.ts";
import type { ControllerConfig } from "../config.ts";
import type { ControllerMetrics } from "../controller-metrics.ts";
import type { EventRecorder } from "../event-recorder.ts";
import type { MadePods } from "./made-pods.ts";
import type { WriteBehind } from "./write-behind.ts";

/** What the steps of a pass over a Sandbox work with. */
export interface SandboxContext {
  readonly client: Client;
  readonly caches: Caches;
  readonly clock: Clock;
  /** Between 0 and 1. */
  readonly random: () => number;
  readonly config: ControllerConfig;
  readonly metrics: ControllerMetrics;
  readonly telemetry: ControllerTelemetry;
  readonly logger: Logger;
  readonly events: EventRecorder;
}

/** What passes over Sandboxes leave for the next ones; nothing is wrong without it. */
export interface PassMemory {
  readonly writeBehind: WriteBehind;
  readonly made: MadePods;
}

/** Field manager of everything a Sandbox's controller creates. */
export const sandboxFieldManager = "sandbox-controller";
