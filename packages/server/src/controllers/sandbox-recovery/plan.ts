import type { Pod, Sandbox } from "@agent-sandbox/api";
import { annotationKeys } from "@agent-sandbox/api";

/** What to do about a failed Pod under `podFailurePolicy: Recreate`. */
export type RecoveryPlan =
  | { readonly kind: "none" }
  | { readonly kind: "wait"; readonly untilMs: number; readonly attempt: number; readonly retriesMax: number }
  | { readonly kind: "replace"; readonly record: string; readonly attempt: number; readonly retriesMax: number };

/** Longest delay between replacements: as long as a crash loop of a kubelet waits. */
const backoffMaxMs = 300_000;

/** A failed Pod is replaced after a doubling delay, until the retries are spent. */
export function planRecovery(sandbox: Sandbox, pod: Pod, nowMs: number): RecoveryPlan {
  const policy = sandbox.spec.podFailurePolicy;
  if (policy?.type !== "Recreate" || pod.status?.phase !== "Failed") return { kind: "none" };
  const retriesMax = policy.retriesMax ?? 6;
  const past = parseRecord(sandbox.metadata.annotations?.[annotationKeys.podReplacements]);
  // The record names the Pod it was written for: a crash between record and delete must not count twice.
  const counted = past.podUid === pod.metadata.uid;
  const done = counted ? past.count - 1 : past.count;
  if (done >= retriesMax) return { kind: "none" };
  const attempt = done + 1;
  const failedMs = failureTimeMs(pod) ?? nowMs;
  const untilMs = failedMs + Math.min(backoffMaxMs, (policy.backoffSeconds ?? 10) * 1000 * 2 ** done);
  if (nowMs < untilMs) return { kind: "wait", untilMs, attempt, retriesMax };
  return { kind: "replace", record: `${attempt}@${pod.metadata.uid ?? ""}`, attempt, retriesMax };
}

function parseRecord(value: string | undefined): { count: number; podUid: string } {
  const [count, podUid] = (value ?? "").split("@");
  const parsed = Number.parseInt(count ?? "", 10);
  return { count: Number.isNaN(parsed) ? 0 : parsed, podUid: podUid ?? "" };
}

function failureTimeMs(pod: Pod): number | undefined {
  const ends = (pod.status?.containerStatuses ?? []).map((status) =>
    Date.parse(status.state?.terminated?.finishedAt ?? ""),
  );
  const turned = (pod.status?.conditions ?? []).map((condition) => Date.parse(condition.lastTransitionTime ?? ""));
  const known = [...ends, ...turned, Date.parse(pod.metadata.creationTimestamp ?? "")].filter(
    (time) => !Number.isNaN(time),
  );
  return known.length === 0 ? undefined : Math.max(...known);
}
