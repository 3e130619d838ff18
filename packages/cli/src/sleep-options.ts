import type { CreateOptions } from "@agent-sandbox/sdk/control/create-options";
import { parseDurationMs } from "./duration.ts";

/** Flags about sleep and recovery, of what makes sandboxes and of what makes their templates. */
export interface SleepFlags {
  readonly autoSuspend?: string | undefined;
  readonly wakePolicy?: "OnTraffic" | "Never" | undefined;
  readonly suspensionStrategy?: "Stop" | "Freeze" | "Hibernate" | undefined;
  readonly hibernateAfter?: string | undefined;
  readonly podFailurePolicy?: "Never" | "Recreate" | undefined;
}

/** Those of a verb's flags that are about sleep and recovery, as options of a sandbox. */
export function sleepOptions(flags: SleepFlags): CreateOptions {
  const { autoSuspend, wakePolicy, suspensionStrategy, hibernateAfter, podFailurePolicy } = flags;
  return {
    ...(autoSuspend !== undefined && { autoSuspendMs: parseDurationMs("--auto-suspend", autoSuspend) }),
    ...(wakePolicy !== undefined && { wakePolicy }),
    ...(suspensionStrategy !== undefined && { suspensionStrategy }),
    ...(hibernateAfter !== undefined && { hibernateAfterMs: parseDurationMs("--hibernate-after", hibernateAfter) }),
    ...(podFailurePolicy !== undefined && { podFailurePolicy: { type: podFailurePolicy } }),
  };
}
