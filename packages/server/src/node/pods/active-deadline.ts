import type { ObservedPod } from "./observed-pod.ts";

/** Whether activeDeadlineSeconds has passed. */
export function isPastDeadline(observed: ObservedPod): boolean {
  const deadlineMs = activeDeadlineMs(observed);
  return deadlineMs !== undefined && observed.nowMs >= deadlineMs;
}

/** Whether the node ends the pod for good, whatever its containers do. */
export function isCutShort(observed: ObservedPod): boolean {
  const { record } = observed;
  return isPastDeadline(observed) || record?.evicted !== undefined || record?.restore?.state === "failed";
}

/** When activeDeadlineSeconds is over, if the pod has one and has begun. */
export function activeDeadlineMs({ pod, record }: ObservedPod): number | undefined {
  const seconds = pod.spec?.activeDeadlineSeconds;
  const startedAt = pod.status?.startTime ?? record?.startedAt;
  if (seconds === undefined || startedAt === undefined) return undefined;
  return Date.parse(startedAt) + seconds * 1000;
}
