import type { KubeObject, Pod, Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool } from "@agent-sandbox/api";
import {
  annotationKeys,
  nameHash,
  networkPolicies,
  pods,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
  sleepAnswerOf,
  standsStill,
  wakePolicyOf,
} from "@agent-sandbox/api";
import type { Logged } from "./logging-transport.ts";
import { condition } from "./objects.ts";
import { SleepNode } from "./sleep-node.ts";
import type { World } from "./world.ts";

/** Everything there is, read past all caches. */
export interface Snapshot {
  readonly sandboxes: readonly Sandbox[];
  readonly claims: readonly SandboxClaim[];
  readonly pools: readonly SandboxWarmPool[];
  readonly templates: readonly SandboxTemplate[];
  readonly pods: readonly Pod[];
  readonly policies: readonly KubeObject[];
}

/** Reads the world. */
export function snapshotOf({ ground }: World): Snapshot {
  return {
    sandboxes: ground.read(sandboxes),
    claims: ground.read(sandboxClaims),
    pools: ground.read(sandboxWarmPools),
    templates: ground.read(sandboxTemplates),
    pods: ground.read(pods),
    policies: ground.read(networkPolicies),
  };
}

const ownerUid = ({ metadata }: KubeObject): string | undefined =>
  metadata.ownerReferences?.find(({ controller }) => controller)?.uid;
const isLive = ({ metadata }: KubeObject): boolean => metadata.deletionTimestamp === undefined;

/** What must hold at every moment, faults or not. Gives the sentences that are violated. */
export function safetyProblems(now: Snapshot, poolSizeMax: number): string[] {
  const problems: string[] = [];
  const claimsByName = new Map<string, string>();
  for (const claim of now.claims) {
    const bound = claim.status?.sandbox?.name;
    if (bound === undefined) continue;
    const other = claimsByName.get(bound);
    const sandbox = now.sandboxes.find(({ metadata }) => metadata.name === bound);
    if (other !== undefined && sandbox !== undefined)
      problems.push(`claims ${other} and ${claim.metadata.name} are both bound to sandbox ${bound}`);
    claimsByName.set(bound, claim.metadata.name);
  }
  for (const claim of now.claims) {
    const own = now.sandboxes.filter((sandbox) => isLive(sandbox) && ownerUid(sandbox) === claim.metadata.uid);
    if (own.length > 1)
      problems.push(
        `claim ${claim.metadata.name} has ${own.length} sandboxes: ${own.map(({ metadata }) => metadata.name).join(", ")}`,
      );
  }
  for (const pool of now.pools) {
    const members = now.sandboxes.filter((sandbox) => ownerUid(sandbox) === pool.metadata.uid);
    if (members.length > poolSizeMax)
      problems.push(`pool has ${members.length} members, more than the ${poolSizeMax} ever asked for`);
  }
  for (const sandbox of now.sandboxes) {
    const own = now.pods.filter((pod) => ownerUid(pod) === sandbox.metadata.uid);
    if (own.length > 1) problems.push(`sandbox ${sandbox.metadata.name} has ${own.length} pods`);
  }
  return [...problems, ...policyProblems(now)];
}

const policed = ({ metadata }: KubeObject): boolean =>
  metadata.labels?.["agents.x-k8s.io/sandbox-template-ref-hash"] === nameHash("tpl");

/** The template, and with it the policy, outlives the Pods that need it. */
function policyProblems({ templates, pods: running }: Snapshot): string[] {
  const gone = !templates.some(({ metadata }) => metadata.name === "tpl");
  return gone && running.some(policed) ? ["the template is gone while its pods run"] : [];
}

const policyOf = (all: Snapshot): KubeObject | undefined =>
  all.policies.find(({ metadata }) => metadata.name === "tpl-network-policy");
const isManaged = (all: Snapshot): boolean =>
  all.templates.some(({ metadata, spec }) => metadata.name === "tpl" && spec.networkPolicyManagement !== "Unmanaged");

/** What the user did between two moments, and which is therefore no fault of a controller. */
export interface UserDeeds {
  /** UIDs of what was deleted. */
  readonly deleted: ReadonlySet<string>;
  /** The template was Unmanaged for a while. */
  readonly policyGivenUp: boolean;
}

/** What must hold between two moments: who may take what away. */
export function transitionProblems(before: Snapshot, now: Snapshot, user: UserDeeds): string[] {
  const problems: string[] = [];
  if (
    !user.policyGivenUp &&
    isManaged(before) &&
    isManaged(now) &&
    policyOf(before) !== undefined &&
    policyOf(now) === undefined &&
    now.pods.some(policed)
  ) {
    problems.push("the network policy went away while its pods run");
  }
  const present = new Map(now.sandboxes.map((sandbox) => [sandbox.metadata.uid, sandbox]));
  for (const sandbox of before.sandboxes) {
    const claim = before.claims.find(({ metadata }) => metadata.uid === ownerUid(sandbox));
    if (claim === undefined || !isLive(claim) || !isLive(sandbox) || user.deleted.has(sandbox.metadata.uid ?? ""))
      continue;
    const after = present.get(sandbox.metadata.uid);
    if (after !== undefined && isLive(after)) continue;
    const claimNow = now.claims.find(({ metadata }) => metadata.uid === claim.metadata.uid);
    const announced =
      claimNow === undefined || !isLive(claimNow) || condition(claimNow, "Ready")?.reason === "ClaimExpired";
    const ownEnd = sandbox.spec.shutdownTime !== undefined;
    if (!announced && !ownEnd)
      problems.push(`sandbox ${sandbox.metadata.name} of the living claim ${claim.metadata.name} was deleted`);
  }
  return problems;
}

/** A backoff that doubles from 5 ms allows fewer than 20 tries in the longest time between two looks; twice that for two errors in turn. */
const triesMax = 40;

/** Nothing is tried again and again without waiting longer each time, whatever the server answers. */
export function hurryProblems(writes: readonly Logged[]): string[] {
  const counts = new Map<string, number>();
  for (const write of writes) {
    const key = `${write.method} ${write.path}${subjectOf(write)} ${write.status}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts].filter(([, count]) => count > triesMax).map(([key, count]) => `tried ${count} times: ${key}`);
}

/** What a create is about: its path names only the kind. */
function subjectOf({ method, body }: Logged): string {
  if (method !== "POST") return "";
  const { metadata, regarding, reason } = JSON.parse(body) as KubeObject & {
    regarding?: { name?: string };
    reason?: string;
  };
  return regarding === undefined ? `/${metadata.name}` : ` of ${regarding.name} ${reason}`;
}

/** What must hold once faults are over and the world has come to rest. */
export function convergenceProblems(now: Snapshot): string[] {
  const problems = [
    ...now.sandboxes.flatMap((sandbox) => sandboxProblems(sandbox, now)),
    ...now.claims.flatMap((claim) => claimProblems(claim, now)),
  ];
  const template = now.templates.find(({ metadata }) => metadata.name === "tpl");
  for (const pool of now.pools.filter(isLive)) {
    const members = now.sandboxes.filter((sandbox) => isLive(sandbox) && ownerUid(sandbox) === pool.metadata.uid);
    const usable = template !== undefined && isLive(template);
    if (usable && members.length !== (pool.spec.replicas ?? 1))
      problems.push(`pool has ${members.length} of ${pool.spec.replicas ?? 1} members`);
    if (pool.status?.observedGeneration !== pool.metadata.generation)
      problems.push("the pool's status is of an older generation");
    if ((pool.status?.replicas ?? 0) !== members.length)
      problems.push(`pool status counts ${pool.status?.replicas ?? 0} of ${members.length}`);
  }
  if (isManaged(now) && policyOf(now) === undefined) problems.push("the template has no network policy");
  const alive = new Set(now.sandboxes.map(({ metadata }) => metadata.uid));
  for (const pod of now.pods)
    if (!alive.has(ownerUid(pod) ?? "")) problems.push(`pod ${pod.metadata.name} is an orphan`);
  return problems;
}

function sandboxProblems(sandbox: Sandbox, now: Snapshot): string[] {
  const { name, uid, generation } = sandbox.metadata;
  if (!isLive(sandbox)) return [`sandbox ${name} is still terminating`];
  const ready = condition(sandbox, "Ready");
  const own = now.pods.filter((pod) => ownerUid(pod) === uid);
  const problems: string[] = [];
  if (ready === undefined) return [`sandbox ${name} has no Ready condition`];
  if (ready.observedGeneration !== generation)
    problems.push(`sandbox ${name}: Ready is of generation ${ready.observedGeneration}, not ${generation}`);
  if (ready.reason === "SandboxExpired")
    return own.length === 0 ? problems : [...problems, `sandbox ${name} has expired and keeps a pod`];
  const suspended = condition(sandbox, "Suspended");
  const asleep = suspended?.status === "True";
  problems.push(...sleepProblems(sandbox, own));
  if (ready.reason === "RestoreFailed") return problems;
  const wanted = isWantedAsleep(sandbox, own) || (sandbox.spec.autoSuspension !== undefined && asleep);
  if (wanted !== asleep) problems.push(`sandbox ${name}: wanted suspended=${wanted}, is ${asleep}`);
  const finished = condition(sandbox, "Finished");
  const ended = own.some(({ status }) => status?.phase === "Succeeded" || status?.phase === "Failed");
  if ((finished !== undefined) !== ended)
    problems.push(`sandbox ${name}: Finished is ${finished?.status}, its pod ended=${ended}`);
  if (!wanted && !ended && ready.status !== "True")
    problems.push(`sandbox ${name} is not Ready: ${ready.reason} ${ready.message}`);
  const podless = asleep && suspended.reason !== "PodFrozen";
  if (own.length !== (podless ? 0 : 1)) problems.push(`sandbox ${name} has ${own.length} pods, suspended=${asleep}`);
  const unnamed = own.filter(({ metadata }) => metadata.uid !== sandbox.status?.podUID);
  if (unnamed.length > 0) problems.push(`sandbox ${name} does not name pod ${unnamed[0]?.metadata.uid}`);
  return problems;
}

/** One that its user has put to sleep and that no traffic since has woken, unless its node cannot do it as it is asked to. */
function isWantedAsleep({ spec, metadata }: Sandbox, own: readonly Pod[]): boolean {
  if (spec.operatingMode !== "Suspended") return false;
  const isDeep = (spec.suspensionStrategy?.type ?? "Stop") !== "Stop";
  if (isDeep && own.some((pod) => pod.status?.phase === "Running" && !SleepNode.isOurs(pod))) return false;
  const { [annotationKeys.suspendedAt]: suspendedAt = "", [annotationKeys.lastActivityAt]: usedAt = "" } =
    metadata.annotations ?? {};
  const isWoken = wakePolicyOf({ spec } as Sandbox) === "OnTraffic" && Date.parse(usedAt) > Date.parse(suspendedAt);
  return !isWoken;
}

/** What wish, answer and saved memory have to do with each other once all is at rest. */
function sleepProblems(sandbox: Sandbox, own: readonly Pod[]): string[] {
  const { name } = sandbox.metadata;
  const { sleep } = sandbox.status ?? {};
  const reason = condition(sandbox, "Suspended")?.reason ?? "";
  const problems: string[] = [];
  if (condition(sandbox, "Ready")?.status === "True") {
    if (own.some(standsStill)) problems.push(`sandbox ${name} is Ready and its processes stand still`);
    if (sleep !== undefined) problems.push(`sandbox ${name} is Ready and keeps the wish ${sleep.id}`);
  }
  const isSaved = sleep?.savedAt !== undefined;
  if (reason === "PodHibernated" && !isSaved) problems.push(`sandbox ${name} is hibernated and nothing was saved`);
  if (condition(sandbox, "Ready")?.reason === "RestoreFailed" && !(isSaved && own.length === 0))
    problems.push(`sandbox ${name} could not be restored and has lost its memory or keeps a pod`);
  const frozen = own.some((pod) => sleepAnswerOf(pod)?.reason === "Frozen" && sleepAnswerOf(pod)?.id === sleep?.id);
  if (reason === "PodFrozen" && !frozen) problems.push(`sandbox ${name} is called frozen and is not`);
  return problems;
}

/** Reasons that leave a claim unserved for good, given what exists. */
const excused = new Set(["ClaimExpired", "SandboxExpired", "TemplateNotFound", "TemplateNotReady", "WarmPoolNotFound"]);

function claimProblems(claim: SandboxClaim, now: Snapshot): string[] {
  const { name, uid } = claim.metadata;
  if (!isLive(claim)) return [`claim ${name} is still terminating`];
  const ready = condition(claim, "Ready");
  if (ready === undefined) return [`claim ${name} has no Ready condition`];
  if (ready.observedGeneration !== claim.metadata.generation) return [`claim ${name}: Ready is of an older generation`];
  if (excused.has(ready.reason)) return [];
  const bound = claim.status?.sandbox?.name;
  if (ready.reason === "WarmSandboxPending") {
    const pool = now.pools.find(({ metadata }) => metadata.name === "pool");
    const free = now.sandboxes.some(
      (sandbox) => ownerUid(sandbox) === pool?.metadata.uid && condition(sandbox, "Ready")?.status === "True",
    );
    return free ? [`claim ${name} waits although a warm sandbox is free`] : [];
  }
  const sandbox = now.sandboxes.find(({ metadata }) => metadata.name === bound);
  if (sandbox === undefined) return [`claim ${name} is not bound: ${ready.reason} ${ready.message}`];
  const problems: string[] = [];
  if (ownerUid(sandbox) !== uid) problems.push(`claim ${name} is bound to sandbox ${bound} of another owner`);
  if (ready.status !== condition(sandbox, "Ready")?.status)
    problems.push(`claim ${name} says Ready=${ready.status}, its sandbox does not`);
  const reserved = claim.metadata.annotations?.[annotationKeys.sandboxName];
  if (reserved !== undefined && reserved !== bound)
    problems.push(`claim ${name} reserves ${reserved} and has ${bound}`);
  return problems;
}
