import type { Pod } from "./builtin.gen.ts";
import type { Sandbox } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";
import { wakePolicyOf } from "./sandbox-phase.ts";
import { type SleepWish, sleepWishOf } from "./sleep-answer.ts";
import { tryParseTimestamp } from "./timestamp.ts";

/**
 * Whether traffic came after a Sandbox was asked to freeze. Its controller then withdraws the wish or makes another, and no one else has to wait for that:
 * a frozen Pod has all of its memory, and nothing of it was saved. An id is the moment of its wish, in milliseconds.
 */
export function isCalledOff(sandbox: Sandbox): boolean {
  const wish = sandbox.status?.sleep;
  if (wish?.rung !== "Freeze" || wakePolicyOf(sandbox) !== "OnTraffic") return false;
  const activityMs = tryParseTimestamp(sandbox.metadata.annotations?.[annotationKeys.lastActivityAt] ?? "");
  return activityMs !== undefined && activityMs > Number(wish.id);
}

/** The wish that the node of a Pod carries out; undefined where there is none, or where it was called off. `isSaved`: that node has the memory of this very Pod. */
export function standingWishOf(sandbox: Sandbox, pod: Pod, isSaved: boolean): SleepWish | undefined {
  return isCalledOff(sandbox) ? undefined : sleepWishOf(sandbox, pod, isSaved);
}
