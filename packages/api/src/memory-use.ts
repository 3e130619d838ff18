import type { Pod } from "./builtin.gen.ts";
import { findCondition } from "./condition.ts";
import type { MemoryUse, Sandbox } from "./kinds.gen.ts";
import { ownGroup } from "./labels.ts";
import type { Condition } from "./meta.ts";
import { type SandboxPhaseName, sandboxPhase } from "./sandbox-phase.ts";
import { tryParseTimestamp } from "./timestamp.ts";

/** Condition of a Pod by which its node says what memory it takes. */
const memoryUseCondition = `${ownGroup}/MemoryUse`;

/** A change by less than this is none: a sandbox at rest has as much from one look to the next. */
const stepMinBytes = 1024 * 1024;

/** A change by less than this part of what was said before is none. */
const stepPart = 0.1;

/** What the node of a Pod says of its memory; undefined where it has said nothing. */
export function memoryUseOf(pod: Pod): MemoryUse | undefined {
  const { message = "" } = findCondition(pod.status?.conditions, memoryUseCondition) ?? {};
  const amount = (what: string): number | undefined => {
    const [, digits] = new RegExp(`(?:^|, )(\\d{1,15}) bytes ${what}(?:,|$)`).exec(message) ?? [];
    return digits === undefined ? undefined : Number(digits);
  };
  const residentBytes = amount("resident");
  if (residentBytes === undefined) return undefined;
  const [sharedBytes, beforeSleepBytes] = [amount("shared"), amount("before sleep")];
  return {
    residentBytes,
    ...(sharedBytes !== undefined && { sharedBytes }),
    ...(beforeSleepBytes !== undefined && { beforeSleepBytes }),
  };
}

/** The condition that says it. */
export function memoryUse(use: MemoryUse): Pick<Condition, "type" | "status" | "reason" | "message"> {
  const { residentBytes, sharedBytes, beforeSleepBytes } = use;
  const parts = [
    `${residentBytes} bytes resident`,
    ...(sharedBytes === undefined ? [] : [`${sharedBytes} bytes shared`]),
    ...(beforeSleepBytes === undefined ? [] : [`${beforeSleepBytes} bytes before sleep`]),
  ];
  return { type: memoryUseCondition, status: "True", reason: "Measured", message: parts.join(", ") };
}

/** Whether memory has changed by so much that it is said anew. */
export function isNotableChange(beforeBytes: number, afterBytes: number): boolean {
  return Math.abs(afterBytes - beforeBytes) >= Math.max(stepMinBytes, beforeBytes * stepPart);
}

/** The phases of one that is asleep, and not merely on its way there. */
const asleepPhases: ReadonlySet<SandboxPhaseName> = new Set(["suspended", "frozen", "hibernated", "archived"]);

/** What a Sandbox costs its node, as its object says. */
export interface SandboxCost {
  readonly phase: SandboxPhaseName;
  /** Undefined where its node has not said it. */
  readonly residentBytes: number | undefined;
  readonly sharedBytes: number | undefined;
  /** Memory on the node's disk; undefined where none was saved. */
  readonly savedBytes: number | undefined;
  /** When it fell asleep, whichever rungs it has gone down since; undefined while it is awake. */
  readonly asleepSinceMs: number | undefined;
  /** What was resident when it fell asleep, less what is now; 0 while it is awake. */
  readonly freedBytes: number;
}

/** Derives the cost. */
export function sandboxCost(sandbox: Sandbox): SandboxCost {
  const { memory, sleep, conditions } = sandbox.status ?? {};
  const { phase } = sandboxPhase(sandbox);
  // Through all rungs of one sleep the Ready condition stays False; that of Suspended turns with each.
  const since = tryParseTimestamp(findCondition(conditions, "Ready")?.lastTransitionTime ?? "");
  const { residentBytes, sharedBytes, beforeSleepBytes } = memory ?? {};
  const isAsleep = asleepPhases.has(phase);
  return {
    phase,
    residentBytes,
    sharedBytes,
    savedBytes: sleep?.savedBytes,
    asleepSinceMs: isAsleep ? since : undefined,
    freedBytes: isAsleep ? Math.max(0, (beforeSleepBytes ?? 0) - (residentBytes ?? 0)) : 0,
  };
}
