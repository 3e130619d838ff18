import type { Sandbox } from "./kinds.gen.ts";
import type { Condition } from "./meta.ts";
import type { ReadyReason } from "./reasons.ts";
import { formatTimestamp } from "./timestamp.ts";

/** A condition to set; the transition time is taken from the clock where it is not given. */
interface ConditionInput extends Omit<Condition, "lastTransitionTime"> {
  lastTransitionTime?: string;
}

/**
 * The conditions with this one set, in their order; one of a type that was not there goes to the end.
 * The transition time changes only when the status does. The list itself is returned when nothing changes.
 */
export function upsertCondition(
  conditions: readonly Condition[],
  input: ConditionInput,
  nowMs: number,
): readonly Condition[] {
  const index = conditions.findIndex((condition) => condition.type === input.type);
  const before = conditions[index];
  const kept = before !== undefined && before.status === input.status ? before.lastTransitionTime : undefined;
  const after: Condition = {
    type: input.type,
    status: input.status,
    reason: input.reason,
    message: input.message,
    lastTransitionTime: kept ?? input.lastTransitionTime ?? formatTimestamp(nowMs),
    ...(input.observedGeneration === undefined ? {} : { observedGeneration: input.observedGeneration }),
  };
  if (before === undefined) return [...conditions, after];
  return isSameCondition(before, after) ? conditions : conditions.with(index, after);
}

/** The condition of that type, if it is there. */
export function findCondition<T extends Pick<Condition, "type">>(
  conditions: readonly T[] | undefined,
  type: string,
): T | undefined {
  return conditions?.find((condition) => condition.type === type);
}

/** Whether the Sandbox's Ready condition has that reason. */
export function hasReadyReason(sandbox: Sandbox, reason: ReadyReason): boolean {
  return findCondition(sandbox.status?.conditions, "Ready")?.reason === reason;
}

/** Whether the condition of that type is there and True. */
export function isConditionTrue(
  conditions: readonly { readonly type: string; readonly status: string }[] | undefined,
  type: string,
): boolean {
  return findCondition(conditions, type)?.status === "True";
}

function isSameCondition(a: Condition, b: Condition): boolean {
  return (
    a.status === b.status &&
    a.reason === b.reason &&
    a.message === b.message &&
    a.lastTransitionTime === b.lastTransitionTime &&
    a.observedGeneration === b.observedGeneration
  );
}
