import type { Pod } from "./builtin.gen.ts";
import { findCondition } from "./condition.ts";
import type { RestoredFrom, Sandbox, SandboxStatus } from "./kinds.gen.ts";
import { annotationKeys, ownGroup } from "./labels.ts";
import type { Condition } from "./meta.ts";

/** What a controller asks a node to do with the processes of a Pod. */
export type SleepWish = NonNullable<SandboxStatus["sleep"]>;

/** How a node answers a wish, as the reason of the Pod's condition. */
export type SleepAnswerReason =
  /** Every process stands still. */
  | "Frozen"
  /** Processes are paused, and their memory is on disk, checked and synced. */
  | "Saved"
  /** Nothing is asked for, or it is being carried out. */
  | "Awake"
  /** It could not be done; the processes run on. */
  | "SleepFailed";

/** An answer of a node. */
export interface SleepAnswer {
  /** The wish that it is about; empty where there is none. */
  readonly id: string;
  readonly reason: SleepAnswerReason;
  /** What it did, or why it could not. */
  readonly message: string;
  /** Size of the memory on disk; only with `Saved`. */
  readonly savedBytes?: number;
}

/** Condition of a Pod by which its node answers a wish for sleep. */
export const asleepCondition = `${ownGroup}/Asleep`;

/** Condition of a Pod that was started from saved memory: False while pages are still read, or where that failed. */
export const restoredCondition = `${ownGroup}/Restored`;

const reasons: readonly string[] = ["Frozen", "Saved", "Awake", "SleepFailed"] satisfies SleepAnswerReason[];

/**
 * The wish that a Sandbox has for the Pod that it names; undefined where it has none, or names another Pod. Once memory was saved, the wish stands for
 * the Pod that saved it alone: a later one is there to be restored, and another sleep has another id. Its node knows whose memory it has (`isSaved`) before
 * the Pod that it sees says so: its two watches come at their own pace, most of all after the API was away.
 */
export function sleepWishOf(sandbox: Sandbox, pod: Pod, isSaved = false): SleepWish | undefined {
  const wish = sandbox.status?.podUID === pod.metadata.uid ? sandbox.status?.sleep : undefined;
  return wish?.savedAt === undefined || isSaved || hasSaved(pod, wish) ? wish : undefined;
}

/** Whether the user of a Sandbox gives up what was saved of it in this sleep. */
export function isColdStartOf({ annotations }: Sandbox["metadata"], wish: Pick<SleepWish, "id"> | undefined): boolean {
  return wish !== undefined && annotations?.[annotationKeys.coldStart] === wish.id;
}

/**
 * What names the memory that a Sandbox has to wake from: the id of its sleep, or the uid of the snapshot that it has not started from yet. Undefined
 * where it runs from its own files.
 */
export function savedMemoryOf(sandbox: Sandbox): string | undefined {
  return sandbox.status?.sleep?.id ?? pendingSnapshotOf(sandbox)?.uid;
}

/** The snapshot that the status of a Sandbox names and that it has not started from yet: its first, or one of its own that it goes back to. */
export function pendingSnapshotOf({ status }: Sandbox): RestoredFrom | undefined {
  const { restart, restoredFrom } = status ?? {};
  return restart ?? (restoredFrom?.startedAt === undefined ? restoredFrom : undefined);
}

/** Which of a Sandbox's files its next Pod, or the one that runs, has: those of its last start from a snapshot of its own; undefined where there was none. */
export function filesGenerationOf({ status }: Sandbox): number | undefined {
  return (status?.restart ?? status?.restoredFrom)?.generation;
}

/** Whether the user of a Sandbox gives up the memory that it has to wake from, so that it starts from files alone. */
export function isMemoryGivenUp(sandbox: Sandbox): boolean {
  const saved = savedMemoryOf(sandbox);
  return saved !== undefined && sandbox.metadata.annotations?.[annotationKeys.coldStart] === saved;
}

/** Whether the node has answered that the memory of this very Pod is on disk, for this very wish. */
export function hasSaved(pod: Pod, { id }: Pick<SleepWish, "id">): boolean {
  const answer = sleepAnswerOf(pod);
  return answer?.reason === "Saved" && answer.id === id;
}

/**
 * What the node of a Pod has answered; undefined where it has not. The message of the condition is the id, a colon, with `Saved` the words
 * `saved <n> bytes` and a space, and the text.
 */
export function sleepAnswerOf(pod: Pod): SleepAnswer | undefined {
  const condition = findCondition(pod.status?.conditions, asleepCondition);
  if (condition === undefined || !isReason(condition.reason)) return undefined;
  const [, id = "", text = ""] = /^(\d*): ?(.*)$/s.exec(condition.message ?? "") ?? [];
  const { reason } = condition;
  const [, bytes, message = ""] = (reason === "Saved" && /^saved (\d{1,15}) bytes ?(.*)$/s.exec(text)) || [];
  return bytes === undefined ? { id, reason, message: text } : { id, reason, message, savedBytes: Number(bytes) };
}

/** The condition that says an answer. */
export function sleepAnswer({
  id,
  reason,
  message,
  savedBytes,
}: SleepAnswer): Pick<Condition, "type" | "status" | "reason" | "message"> {
  const saved = savedBytes === undefined ? "" : `saved ${savedBytes} bytes${message === "" ? "" : " "}`;
  const status = isAsleepReason(reason) ? "True" : "False";
  return { type: asleepCondition, status, reason, message: `${id}: ${saved}${message}` };
}

/** Whether the processes of a Pod stand still, for this wish or an earlier one: nothing in it can be used. */
export function standsStill(pod: Pod): boolean {
  const answer = sleepAnswerOf(pod);
  return answer !== undefined && isAsleepReason(answer.reason);
}

/** What a Pod says of its start from saved memory; undefined where it was started from its files. */
export function restoreOf(pod: Pod): RestoreState | undefined {
  const condition = findCondition(pod.status?.conditions, restoredCondition);
  if (condition === undefined) return undefined;
  if (condition.status === "True") return { state: "restored" };
  if (condition.reason !== "RestoreFailed") return { state: "restoring" };
  return { state: "failed", message: condition.message ?? "" };
}

/** How far a start from saved memory has come. */
export type RestoreState =
  | { readonly state: "restored" }
  /** It may serve already; pages are still read. */
  | { readonly state: "restoring" }
  | { readonly state: "failed"; readonly message: string };

function isAsleepReason(reason: SleepAnswerReason): boolean {
  return reason === "Frozen" || reason === "Saved";
}

function isReason(reason: string | undefined): reason is SleepAnswerReason {
  return reason !== undefined && reasons.includes(reason);
}
