import type { Client, Clock } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import type { GateOptions } from "./access/gate.ts";
import type { ReviewerOptions } from "./access/reviewer.ts";
import type { AddressingOptions } from "./addressing/parse-target.ts";
import type { ExchangeLimits } from "./limits.ts";
import type { RetryOptions } from "./proxy/retry.ts";

/** Everything a router is configured with; times in milliseconds. */
export interface RouterOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  readonly addressing: AddressingOptions;
  readonly access: Omit<GateOptions, "clock" | "reviewer" | "uidOf">;
  /** Signs links; absent turns them off. Of several that change in time, the first signs and each one verifies. */
  readonly linkSecret?: Uint8Array | (() => readonly Uint8Array[]);
  readonly limits: ExchangeLimits;
  readonly connectTimeoutMs: number;
  /** How long connections to a Pod that goes away may last. Default: the grace period of a Pod that names none. */
  readonly leftMs?: number;
  /** Attempts to connect after the first failed. */
  readonly retry: Omit<RetryOptions, "onRetry">;
  /** From a request's start to the first byte of its answer, where the caller names no limit of his own. */
  readonly firstByteTimeoutMs: number;
  /** The longest limit that a caller may name with `X-Sandbox-Timeout`. */
  readonly callerTimeoutMaxMs: number;
  readonly review?: Pick<ReviewerOptions, "audiences" | "ttlMs" | "entriesMax">;
  readonly holdLimitMs: number;
  readonly heldMax: number;
  readonly upgradeIdleTimeoutMs: number;
  /** The longest an upgraded connection lasts; 0 means for ever. */
  readonly upgradeLifetimeMs: number;
  readonly bodyBytesMax: number;
  readonly accessLog: boolean;
  /** Make spans; the process must have started an exporter. Default off. */
  readonly tracing?: boolean;
  readonly namespace?: string;
}

/** The options that a running router can be given anew. */
export type RouterTuning = Pick<
  RouterOptions,
  "limits" | "firstByteTimeoutMs" | "callerTimeoutMaxMs" | "bodyBytesMax" | "accessLog"
>;
