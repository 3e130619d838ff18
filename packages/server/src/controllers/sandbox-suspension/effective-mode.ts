import type { Sandbox } from "@agent-sandbox/api";
import { lastActivityAnnotation, suspendedAtAnnotation } from "../well-known.ts";

/** The mode a Sandbox is in, computed from its spec, the reported activity and the clock. */
export interface EffectiveMode {
  readonly mode: "Running" | "Suspended";
  /** Who decided: the user's `operatingMode`, idleness, traffic, or the lack of a way to suspend as asked. */
  readonly cause: "user" | "inactivity" | "traffic" | "strategy-unavailable";
  /** When the answer changes by itself. */
  readonly changesAtMs?: number;
  /** The moment of suspension must be remembered, so that later activity can be told from earlier. */
  readonly stampSuspendedAt?: boolean;
}

/** Derives the mode; `spec.operatingMode` stays the user's. */
export function effectiveMode(sandbox: Sandbox, nowMs: number): EffectiveMode {
  const asked = askedMode(sandbox, nowMs);
  if (asked.mode === "Running" || strategyOf(sandbox) === "Stop") return asked;
  // Stopping the Pod instead would lose the memory that the user asked to keep.
  return { mode: "Running", cause: "strategy-unavailable" };
}

function askedMode(sandbox: Sandbox, nowMs: number): EffectiveMode {
  const activityMs = timeOf(sandbox, lastActivityAnnotation);
  if (sandbox.spec.operatingMode === "Suspended") return suspendedByUser(sandbox, activityMs, nowMs);
  return idleMode(sandbox, activityMs, nowMs, "user");
}

function suspendedByUser(sandbox: Sandbox, activityMs: number | undefined, nowMs: number): EffectiveMode {
  if (wakePolicyOf(sandbox) === "Never") return { mode: "Suspended", cause: "user" };
  const suspendedMs = timeOf(sandbox, suspendedAtAnnotation);
  if (suspendedMs === undefined) return { mode: "Suspended", cause: "user", stampSuspendedAt: true };
  if (activityMs === undefined || activityMs <= suspendedMs) return { mode: "Suspended", cause: "user" };
  return idleMode(sandbox, activityMs, nowMs, "traffic");
}

function idleMode(
  sandbox: Sandbox,
  activityMs: number | undefined,
  nowMs: number,
  awakeBy: "user" | "traffic",
): EffectiveMode {
  const timeoutSeconds = sandbox.spec.autoSuspension?.inactivityTimeoutSeconds;
  if (timeoutSeconds === undefined) return { mode: "Running", cause: awakeBy };
  const bornMs = Date.parse(sandbox.metadata.creationTimestamp ?? "");
  const idleFromMs = Math.max(activityMs ?? 0, Number.isNaN(bornMs) ? nowMs : bornMs);
  const asleepAtMs = idleFromMs + timeoutSeconds * 1000;
  if (nowMs >= asleepAtMs) return { mode: "Suspended", cause: "inactivity" };
  return { mode: "Running", cause: awakeBy, changesAtMs: asleepAtMs };
}

/** Unset: traffic wakes what fell asleep by itself, and nothing wakes what a user put to sleep. */
export function wakePolicyOf(sandbox: Sandbox): "OnTraffic" | "Never" {
  return sandbox.spec.wakePolicy ?? (sandbox.spec.autoSuspension === undefined ? "Never" : "OnTraffic");
}

/** How the Sandbox wants to be suspended. */
export function strategyOf(sandbox: Sandbox): "Stop" | "Freeze" | "Hibernate" {
  return sandbox.spec.suspensionStrategy?.type ?? "Stop";
}

function timeOf(sandbox: Sandbox, annotation: string): number | undefined {
  const parsed = Date.parse(sandbox.metadata.annotations?.[annotation] ?? "");
  return Number.isNaN(parsed) ? undefined : parsed;
}
