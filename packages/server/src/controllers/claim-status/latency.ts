import type { Sandbox, SandboxClaim, SandboxClaimStatus } from "@agent-sandbox/api";
import { annotationKeys, findCondition, isConditionTrue, labelKeys } from "@agent-sandbox/api";
import type { ControllerMetrics } from "../controller-metrics.ts";
import type { ClaimTimes } from "./claim-times.ts";

/** What a latency observation needs. */
export interface LatencyInput {
  readonly claim: SandboxClaim;
  readonly sandbox: Sandbox;
  readonly status: SandboxClaimStatus;
  readonly times: ClaimTimes;
  /** Whether the claim had been measured before this status was written. */
  readonly measured: boolean;
  readonly nowMs: number;
}

/** Observes the latencies once in a claim's life: when it turns Ready and neither status nor memory says it was before. */
export function recordLatency(metrics: ControllerMetrics, input: LatencyInput): void {
  const { claim, sandbox, status, times, measured, nowMs } = input;
  const before = isConditionTrue(claim.status?.conditions, "Ready");
  if (!isConditionTrue(status.conditions, "Ready")) return;
  const known = claim.metadata.annotations?.[annotationKeys.claimFirstReadyAt] !== undefined;
  times.measured = true;
  if (measured || before || known) return;
  const launchType = launchTypeOf(sandbox);
  const template = sandbox.metadata.annotations?.[annotationKeys.templateRef] ?? "__unknown__";
  const labels = { launch_type: launchType, sandbox_template: template };
  observe(metrics.claimStartup, labels, nowMs, stamp(claim, annotationKeys.webhookFirstObservedAt));
  observe(
    metrics.claimControllerStartup,
    labels,
    nowMs,
    stamp(claim, annotationKeys.controllerFirstObservedAt) ?? times.firstSeenMs,
  );
  observe(metrics.claimClientStartup, labels, nowMs, stamp(claim, annotationKeys.clientFirstRequestedAt));
  const readyMs = Date.parse(findCondition(sandbox.status?.conditions, "Ready")?.lastTransitionTime ?? "");
  const bornMs = Date.parse(sandbox.metadata.creationTimestamp ?? "");
  const namespace = claim.metadata.namespace ?? "";
  if (readyMs >= bornMs) metrics.creationLatency.observe({ namespace, ...labels }, readyMs - bornMs);
}

type Latency = ControllerMetrics["claimStartup"];

/** A start in the future comes from a clock that differs from ours, and is not observed. */
function observe(histogram: Latency, labels: Record<string, string>, nowMs: number, startMs: number | undefined): void {
  if (startMs === undefined || startMs > nowMs) return;
  histogram.observe(labels, nowMs - startMs);
}

function stamp(claim: SandboxClaim, annotation: string): number | undefined {
  const parsed = Date.parse(claim.metadata.annotations?.[annotation] ?? "");
  return Number.isNaN(parsed) ? undefined : parsed;
}

function launchTypeOf(sandbox: Sandbox): string {
  const value = sandbox.metadata.labels?.[labelKeys.launchType];
  return value === "warm" || value === "cold" ? value : "unknown";
}
