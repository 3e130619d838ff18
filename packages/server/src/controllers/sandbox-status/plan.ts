import type { Condition, MemoryUse, ReadyReason, RestoredFrom, Sandbox, SandboxStatus } from "@agent-sandbox/api";
import {
  isConditionTrue,
  isControlledBy,
  labelKeys,
  memoryUseOf,
  nameHash,
  sandboxes,
  semanticEqual,
  upsertCondition,
} from "@agent-sandbox/api";
import type { EffectiveMode } from "../sandbox-suspension/effective-mode.ts";
import type { SleepPlan } from "../sandbox-suspension/plan-sleep.ts";
import { statusPatch } from "../status-patch.ts";
import {
  fallingVerdict,
  finishedVerdict,
  podScheduledVerdict,
  readyVerdict,
  type StepResults,
  suspendedVerdict,
  type Verdict,
} from "./conditions.ts";
import { isPodCondition, podConditions } from "./limit-conditions.ts";

/** What the Service step says about `status.service`. */
export type ServiceStatus = "set" | "clear" | "keep";

/** Everything the status of a live Sandbox depends on. */
export interface StatusInput {
  readonly sandbox: Sandbox;
  readonly mode: EffectiveMode;
  readonly results: StepResults;
  readonly service: ServiceStatus;
  readonly clusterDomain: string;
  readonly nowMs: number;
}

/** The whole status of a Sandbox that has not expired. */
export function planStatus(input: StatusInput): SandboxStatus {
  const { sandbox, mode, results } = input;
  const status: SandboxStatus = { ...sandbox.status, ...serviceFields(input) };
  if (input.service === "clear") {
    delete status.service;
    delete status.serviceFQDN;
  }
  delete status.podIPs;
  delete status.nodeName;
  if (results.sleep.wish === undefined) delete status.sleep;
  else status.sleep = results.sleep.wish;
  if (results.pod !== undefined) {
    status.selector = `${labelKeys.sandboxNameHash}=${nameHash(sandbox.metadata.name)}`;
  }
  if (results.restoredFrom !== undefined) {
    status.restoredFrom = results.restoredFrom;
    delete status.restart;
  }
  const owned = ownedPod(sandbox, results);
  if (owned !== undefined) Object.assign(status, podFields(owned));
  const memory = planMemory(sandbox, mode, results);
  if (memory === undefined) delete status.memory;
  else status.memory = memory;
  const verdicts = [
    suspendedVerdict(sandbox, mode, results),
    finishedVerdict(sandbox, results),
    podScheduledVerdict(sandbox, results),
    readyVerdict(sandbox, mode, results),
  ];
  const made = new Set(verdicts.map((verdict) => verdict?.type));
  let conditions = (sandbox.status?.conditions ?? []).filter(
    (condition) =>
      made.has(condition.type) ||
      (condition.type !== "Finished" && condition.type !== "PodScheduled" && !isPodCondition(condition)),
  );
  for (const verdict of verdicts) {
    if (verdict !== undefined) conditions = withVerdict(conditions, verdict, sandbox, input.nowMs);
  }
  return { ...status, conditions: [...conditions, ...podConditions(sandbox, owned)] };
}

/** What its Pod says; of one that sleeps without a Pod, what was resident before. */
function planMemory(sandbox: Sandbox, { mode }: EffectiveMode, results: StepResults): MemoryUse | undefined {
  const owned = ownedPod(sandbox, results);
  if (owned !== undefined) return memoryUseOf(owned);
  const { memory } = sandbox.status ?? {};
  if (mode === "Running" || memory === undefined || results.pod !== undefined) return undefined;
  return { residentBytes: 0, beforeSleepBytes: memory.beforeSleepBytes ?? memory.residentBytes };
}

function ownedPod(sandbox: Sandbox, { pod }: StepResults): StepResults["pod"] {
  return pod !== undefined && isControlledBy(pod, sandboxes, sandbox) ? pod : undefined;
}

function serviceFields({ sandbox, service, clusterDomain }: StatusInput): Partial<SandboxStatus> {
  if (service !== "set") return {};
  const { name, namespace } = sandbox.metadata;
  return { service: name, serviceFQDN: `${name}.${namespace}.svc.${clusterDomain}` };
}

function podFields(pod: NonNullable<StepResults["pod"]>): Partial<SandboxStatus> {
  const addresses = (pod.status?.podIPs ?? []).map((entry) => entry.ip ?? "").filter((ip) => ip !== "");
  return {
    ...(pod.metadata.uid === undefined ? {} : { podUID: pod.metadata.uid }),
    ...(addresses.length > 0 ? { podIPs: addresses } : {}),
    ...(pod.spec?.nodeName === undefined || pod.spec.nodeName === "" ? {} : { nodeName: pod.spec.nodeName }),
  };
}

/** Upserts a verdict, stamped with this Sandbox's generation and, where the status turned, with whole seconds of now. */
function withVerdict(conditions: readonly Condition[], verdict: Verdict, sandbox: Sandbox, nowMs: number): Condition[] {
  const observedGeneration = sandbox.metadata.generation ?? 0;
  return [...upsertCondition(conditions, { ...verdict, observedGeneration }, nowMs)];
}

/** Status of a Sandbox whose time is up: marked, nothing removed yet. */
export function planExpiredMark(sandbox: Sandbox, nowMs: number): SandboxStatus {
  const kept = (sandbox.status?.conditions ?? []).filter((condition) => condition.type !== "PodScheduled");
  return { ...sandbox.status, conditions: withVerdict(kept, expiredVerdict, sandbox, nowMs) };
}

/** Status of a Sandbox that is about to fall asleep: announced, with the wish for its node, nothing removed yet. */
export function planSleepMark(sandbox: Sandbox, mode: EffectiveMode, sleep: SleepPlan, nowMs: number): SandboxStatus {
  const results: StepResults = {
    pod: undefined,
    podError: undefined,
    multiplePods: undefined,
    invalid: undefined,
    errors: [],
    serviceExists: sandbox.status?.service !== undefined,
    recovery: { kind: "none" },
    sleep,
  };
  const ready = withVerdict(sandbox.status?.conditions ?? [], readyVerdict(sandbox, mode, results), sandbox, nowMs);
  if (sleep.wish === undefined) return { ...sandbox.status, conditions: ready };
  const conditions = withVerdict(ready, fallingVerdict(sandbox, mode, sleep.stage), sandbox, nowMs);
  return { ...sandbox.status, sleep: sleep.wish, conditions };
}

/** Status of a Sandbox whose memory is on disk: said, the Pod is still there. */
export function planSavedMark(sandbox: Sandbox, { wish }: SleepPlan): SandboxStatus {
  return { ...sandbox.status, ...(wish !== undefined && { sleep: wish }) };
}

/** Status of a Sandbox that is about to start from a snapshot: named, nothing made yet. */
export function planNamedMark(sandbox: Sandbox, restoredFrom: RestoredFrom, nowMs: number): SandboxStatus {
  const verdict: Verdict & { readonly reason: ReadyReason } = {
    type: "Ready",
    status: "False",
    reason: "SandboxRestoring",
    message: `Starting from SandboxSnapshot "${restoredFrom.name}"`,
  };
  const conditions = withVerdict(sandbox.status?.conditions ?? [], verdict, sandbox, nowMs);
  const named = restoredFrom.generation === undefined ? { restoredFrom } : { restart: restoredFrom };
  return { ...sandbox.status, ...named, conditions };
}

/** Status of a Sandbox that is not to go back to a snapshot any more: it keeps the files that it has. */
export function planWithdrawnMark({ status }: Sandbox): SandboxStatus {
  const { restart: _restart, ...rest } = status ?? {};
  return rest;
}

/** Status of a Sandbox that runs from its snapshot: said, nothing removed yet. */
export function planStartedMark({ status }: Sandbox, restoredFrom: RestoredFrom): SandboxStatus {
  const { restart: _restart, ...rest } = status ?? {};
  return { ...rest, restoredFrom };
}

/** Status after the teardown: only conditions remain, and whom the Sandbox named last, what it started from and what was saved of it, because its files outlast it. */
export function planExpiredStatus(sandbox: Sandbox, nowMs: number): SandboxStatus {
  const { podUID, sleep, restoredFrom } = sandbox.status ?? {};
  return {
    conditions: planExpiredMark(sandbox, nowMs).conditions ?? [],
    ...(podUID === undefined ? {} : { podUID }),
    ...(sleep?.savedAt === undefined ? {} : { sleep }),
    ...(restoredFrom === undefined ? {} : { restoredFrom }),
  };
}

const expiredVerdict: Verdict & { readonly reason: ReadyReason } = {
  type: "Ready",
  status: "False",
  reason: "SandboxExpired",
  message: "Sandbox has expired",
};

/** The patch to send, or undefined: a node name alone waits for the next write unless the Sandbox is Ready. */
export function planStatusPatch(
  before: SandboxStatus | undefined,
  after: SandboxStatus,
): Record<string, unknown> | undefined {
  const patch = statusPatch(before, after);
  if (patch === undefined) return undefined;
  // A merge patch merges what is below a field, too: what another wish, or look at the memory, has not must not stay from the one before.
  for (const field of ["sleep", "memory"] as const) {
    if (after[field] === undefined || patch[field] === undefined) continue;
    const cleared = Object.keys(before?.[field] ?? {}).map((key) => [key, null] as const);
    patch[field] = { ...Object.fromEntries(cleared), ...after[field] };
  }
  const nodeOnly = semanticEqual(Object.keys(patch), ["nodeName"]);
  return nodeOnly && !isConditionTrue(after.conditions, "Ready") ? undefined : patch;
}
