import type { Client, Clock } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { Caches } from "../caches.ts";
import type { ControllerConfig } from "../config.ts";
import type { ControllerMetrics } from "../controller-metrics.ts";
import type { EventRecorder } from "../event-recorder.ts";

/** What the steps of a pass over a Sandbox work with. */
export interface SandboxContext {
  readonly client: Client;
  readonly caches: Caches;
  readonly clock: Clock;
  readonly config: ControllerConfig;
  readonly metrics: ControllerMetrics;
  readonly logger: Logger;
  readonly events: EventRecorder;
}

/** Field manager of everything a Sandbox's controller creates. */
export const sandboxFieldManager = "sandbox-controller";
