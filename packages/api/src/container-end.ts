import { findCondition } from "./condition.ts";
import type { Sandbox } from "./kinds.gen.ts";

/** The condition that is on a Sandbox once its containers have ended, whether or not they were started again. Its time is that of the last end. */
export const containerEndedCondition = "ContainerEnded";

/**
 * Tells the last end of a Sandbox's containers from any other; undefined where they never ended. Times are whole seconds, so
 * that the message, which names the run, is a part of it.
 */
export function containerEndOf({ status }: Sandbox): string | undefined {
  const ended = findCondition(status?.conditions, containerEndedCondition);
  return ended === undefined ? undefined : `${ended.lastTransitionTime} ${ended.message}`;
}
