import type { Client, Clock, ControllerTelemetry } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";

/** What every stand-in works with. */
export interface StandinContext {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly telemetry: ControllerTelemetry;
}

/** Keys that a stand-in works on at once where it says no other number: passes wait for the API, not for the processor. */
export const standinWorkers = 4;
