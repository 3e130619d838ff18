import type { Condition, ReadyReason, Sandbox, SandboxStatus } from "@agent-sandbox/api";
import {
  isConditionTrue,
  isControlledBy,
  nameHash,
  sandboxes,
  semanticEqual,
  upsertCondition,
} from "@agent-sandbox/api";
import type { EffectiveMode } from "../sandbox-suspension/effective-mode.ts";
import { statusPatch } from "../status-patch.ts";
import { nameHashLabel } from "../well-known.ts";
import {
  finishedVerdict,
  podScheduledVerdict,
  readyVerdict,
  type StepResults,
  suspendedVerdict,
  type Verdict,
} from "./conditions.ts";
import { isLimitCondition, limitConditions } from "./limit-conditions.ts";

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
  if (results.pod !== undefined) {
    status.selector = `${nameHashLabel}=${nameHash(sandbox.metadata.name)}`;
  }
  const owned = ownedPod(sandbox, results);
  if (owned !== undefined) Object.assign(status, podFields(owned));
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
      (condition.type !== "Finished" && condition.type !== "PodScheduled" && !isLimitCondition(condition)),
  );
  for (const verdict of verdicts) {
    if (verdict !== undefined) conditions = withVerdict(conditions, verdict, sandbox, input.nowMs);
  }
  return { ...status, conditions: [...conditions, ...limitConditions(sandbox, owned)] };
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

/** Status of a Sandbox that is about to fall asleep: announced, nothing removed yet. */
export function planSleepMark(sandbox: Sandbox, mode: EffectiveMode, nowMs: number): SandboxStatus {
  const results: StepResults = {
    pod: undefined,
    podError: undefined,
    multiplePods: undefined,
    invalid: undefined,
    errors: [],
    serviceExists: sandbox.status?.service !== undefined,
    recovery: { kind: "none" },
  };
  const verdict = readyVerdict(sandbox, mode, results);
  return { ...sandbox.status, conditions: withVerdict(sandbox.status?.conditions ?? [], verdict, sandbox, nowMs) };
}

/** Status after the teardown: only conditions remain, and whom the Sandbox named last, because its files outlast it. */
export function planExpiredStatus(sandbox: Sandbox, nowMs: number): SandboxStatus {
  const podUID = sandbox.status?.podUID;
  return {
    conditions: planExpiredMark(sandbox, nowMs).conditions ?? [],
    ...(podUID === undefined ? {} : { podUID }),
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
  const nodeOnly = semanticEqual(Object.keys(patch), ["nodeName"]);
  return nodeOnly && !isConditionTrue(after.conditions, "Ready") ? undefined : patch;
}
