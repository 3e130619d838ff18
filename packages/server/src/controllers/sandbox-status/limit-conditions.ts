import type { Condition, ContainerStatus, Pod, Sandbox } from "@agent-sandbox/api";
import {
  containerEndedCondition,
  crashLoopCondition,
  crashLoopOf,
  crashLoopReason,
  describeCrashLoop,
  diskFullCondition,
  findCondition,
} from "@agent-sandbox/api";

/** Conditions that say which limit a Sandbox has reached, or that its program does not stay; one that is well has none of them. */
const limitTypes: ReadonlySet<string> = new Set([
  "OOMKilled",
  "PidLimitReached",
  "DiskFull",
  "Evicted",
  crashLoopCondition,
]);

/** A condition's message is for people; a Pod's may be as long as its guest likes. */
const messageMax = 300;

/** Whether a condition names a limit. */
export function isLimitCondition({ type }: Pick<Condition, "type">): boolean {
  return limitTypes.has(type);
}

/** Whether a condition is one of those that `podConditions` makes: it goes with the Pod that it follows from. */
export function isPodCondition(condition: Pick<Condition, "type">): boolean {
  return condition.type === containerEndedCondition || isLimitCondition(condition);
}

/**
 * What the Pod says of its limits, of the last end of its containers and of a program that ends again and again. The time is that of what happened, so that the same thing happening
 * again is told from the first time.
 */
export function podConditions(sandbox: Sandbox, pod: Pod | undefined): Condition[] {
  const { metadata } = sandbox;
  const observedGeneration = metadata.generation ?? 0;
  const statuses = [...(pod?.status?.initContainerStatuses ?? []), ...(pod?.status?.containerStatuses ?? [])];
  const found = [
    killedBy(statuses, "OOMKilled", "MemoryLimit"),
    killedBy(statuses, "PidLimitReached", "PidLimit"),
    diskFull(pod),
    evicted(pod),
    containersEnded(pod?.status?.containerStatuses ?? []),
    crashLoop(sandbox, pod),
  ];
  return found.flatMap((condition) => (condition === undefined ? [] : [{ ...condition, observedGeneration }]));
}

type Bare = Omit<Condition, "observedGeneration">;

/** The last end of a container that a limit caused. */
function killedBy(statuses: readonly ContainerStatus[], type: string, reason: string): Bare | undefined {
  const ends = statuses.flatMap(({ name, state, lastState }) => {
    const end = state?.terminated ?? lastState?.terminated;
    return end?.reason === type && end.finishedAt !== undefined ? [{ name, end, at: end.finishedAt }] : [];
  });
  const last = ends.toSorted((a, b) => a.at.localeCompare(b.at)).at(-1);
  if (last === undefined) return undefined;
  const message = `container ${last.name}: ${plain(last.end.message ?? "the sandbox was killed at a limit")}`;
  return { type, status: "True", reason, message, lastTransitionTime: last.at };
}

/** The last end of all containers: what is open to a Pod of which one goes on is not cut. */
function containersEnded(statuses: readonly ContainerStatus[]): Bare | undefined {
  const ends = statuses.flatMap(({ name, state, lastState }) => {
    const end = state?.terminated ?? lastState?.terminated;
    return end?.finishedAt === undefined ? [] : [{ name, end, at: end.finishedAt }];
  });
  const last = ends.toSorted((a, b) => a.at.localeCompare(b.at)).at(-1);
  if (last === undefined || ends.length < statuses.length) return undefined;
  const { exitCode, reason = exitCode === 0 ? "Completed" : "Error", containerID = "" } = last.end;
  // Two runs may end in one second: the last digits of the run's id tell them apart.
  const run = containerID === "" ? "" : `, run ${containerID.slice(-runDigits)}`;
  const message = `container ${last.name} ended with exit code ${exitCode} (${plain(reason)}${run})`;
  return { type: containerEndedCondition, status: "True", reason: "Ended", message, lastTransitionTime: last.at };
}

/** Of the id of a run, those that differ from run to run. */
const runDigits = 12;

function diskFull(pod: Pod | undefined): Bare | undefined {
  const own = findCondition(pod?.status?.conditions, diskFullCondition);
  if (own?.lastTransitionTime === undefined || (own.status !== "True" && own.status !== "False")) return undefined;
  const { status, lastTransitionTime } = own;
  const reason = status === "True" ? "StorageLimit" : "SpaceFree";
  return { type: "DiskFull", status, reason, message: plain(own.message ?? ""), lastTransitionTime };
}

function evicted(pod: Pod | undefined): Bare | undefined {
  if (pod?.status?.phase !== "Failed" || pod.status.reason !== "Evicted") return undefined;
  const since = findCondition(pod.status.conditions, "Ready")?.lastTransitionTime;
  const lastTransitionTime = since ?? pod.status.startTime;
  if (lastTransitionTime === undefined) return undefined;
  const message = plain(pod.status.message ?? "the node ended the Pod to keep itself alive");
  return { type: "Evicted", status: "True", reason: "Evicted", message, lastTransitionTime };
}

/** A deleted Pod has its containers ended and is no crash loop any more. */
function crashLoop({ spec }: Sandbox, pod: Pod | undefined): Bare | undefined {
  const crash = pod?.metadata.deletionTimestamp === undefined ? crashLoopOf(pod) : undefined;
  if (crash === undefined) return undefined;
  const message = describeCrashLoop(crash, spec.podTemplate.spec);
  return {
    type: crashLoopCondition,
    status: "True",
    reason: crashLoopReason,
    message,
    lastTransitionTime: crash.finishedAt,
  };
}

/** The first line, without what a terminal would obey. */
function plain(text: string): string {
  const [line = ""] = text.split("\n");
  return line.replace(/[^\x20-\x7e]/g, "?").slice(0, messageMax);
}
