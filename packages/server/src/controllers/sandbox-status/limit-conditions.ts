import type { Condition, ContainerStatus, Pod, Sandbox } from "@agent-sandbox/api";
import { diskFullCondition, findCondition } from "@agent-sandbox/api";

/** Conditions that say which limit a Sandbox has reached; one that has reached none has none of them. */
const limitTypes: ReadonlySet<string> = new Set(["OOMKilled", "PidLimitReached", "DiskFull", "Evicted"]);

/** A condition's message is for people; a Pod's may be as long as its guest likes. */
const messageMax = 300;

/** Whether a condition is one of those that follow from the Pod alone. */
export function isLimitCondition({ type }: Pick<Condition, "type">): boolean {
  return limitTypes.has(type);
}

/** What the Pod says of its limits. The time is that of what happened, so that the same limit reached again is told from the first time. */
export function limitConditions({ metadata }: Sandbox, pod: Pod | undefined): Condition[] {
  const observedGeneration = metadata.generation ?? 0;
  const statuses = [...(pod?.status?.initContainerStatuses ?? []), ...(pod?.status?.containerStatuses ?? [])];
  const found = [
    killedBy(statuses, "OOMKilled", "MemoryLimit"),
    killedBy(statuses, "PidLimitReached", "PidLimit"),
    diskFull(pod),
    evicted(pod),
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

/** The first line, without what a terminal would obey. */
function plain(text: string): string {
  const [line = ""] = text.split("\n");
  return line.replace(/[^\x20-\x7e]/g, "?").slice(0, messageMax);
}
