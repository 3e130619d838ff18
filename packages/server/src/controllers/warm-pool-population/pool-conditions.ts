import type { Condition, SandboxWarmPool, SandboxWarmPoolStatus } from "@agent-sandbox/api";
import { upsertCondition } from "@agent-sandbox/api";

/** What is known of the pool's template. */
export type TemplateState =
  | { readonly kind: "resolved" }
  | { readonly kind: "missing"; readonly message: string }
  | { readonly kind: "not-ready"; readonly message: string };

/** What the conditions depend on. */
export interface PoolConditionInput {
  readonly pool: SandboxWarmPool;
  readonly status: SandboxWarmPoolStatus;
  readonly state: TemplateState;
  readonly held: number;
  readonly desired: number;
  readonly failure?: string;
  readonly nowMs: number;
}

type Verdict = Omit<Condition, "lastTransitionTime" | "observedGeneration">;

/** Ready, Progressing and TemplateResolved, with the reason when one is False. */
export function poolConditions(input: PoolConditionInput): Condition[] {
  const { pool, nowMs } = input;
  const observedGeneration = pool.metadata.generation ?? 0;
  let conditions: readonly Condition[] = pool.status?.conditions ?? [];
  for (const verdict of [templateVerdict(input), progressVerdict(input), readyVerdict(input)]) {
    conditions = upsertCondition(conditions, { ...verdict, observedGeneration }, nowMs);
  }
  return [...conditions];
}

function templateVerdict({ pool, state }: PoolConditionInput): Verdict {
  const type = "TemplateResolved";
  if (state.kind === "resolved") {
    const message = `SandboxTemplate "${pool.spec.sandboxTemplateRef.name}" is used`;
    return { type, status: "True", reason: "TemplateFound", message };
  }
  const reason = state.kind === "missing" ? "TemplateNotFound" : "TemplateNotReady";
  return { type, status: "False", reason, message: state.message };
}

function progressVerdict({ failure, held, desired }: PoolConditionInput): Verdict {
  const type = "Progressing";
  if (failure !== undefined) return { type, status: "False", reason: "WriteFailed", message: failure };
  if (held > 0) {
    const message = `${held} of ${desired} members cannot be scheduled`;
    return { type, status: "False", reason: "Unschedulable", message };
  }
  return { type, status: "True", reason: "Progressing", message: "Members are created as they are needed" };
}

function readyVerdict({ status, desired }: PoolConditionInput): Verdict {
  const ready = status.readyReplicas ?? 0;
  const message = `${ready} of ${desired} members are ready`;
  if (ready >= desired) return { type: "Ready", status: "True", reason: "MembersReady", message };
  return { type: "Ready", status: "False", reason: "MembersNotReady", message };
}
