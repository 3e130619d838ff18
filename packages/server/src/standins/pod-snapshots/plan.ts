import type {
  Condition,
  Pod,
  PodSnapshot,
  PodSnapshotManualTrigger,
  Sandbox,
  SandboxSnapshot,
} from "@agent-sandbox/api";
import {
  annotationKeys,
  controllerReference,
  findCondition,
  isControlledBy,
  labelKeys,
  nameHash,
  podSnapshotAnnotations,
  podSnapshots,
  snapshotState,
  upsertCondition,
} from "@agent-sandbox/api";

/** What a trigger is aimed at. */
export type Target =
  | { readonly kind: "sandbox"; readonly sandbox: Sandbox; readonly pod: Pod }
  | { readonly kind: "problem"; readonly message: string };

/** Everything a pass looks at: a trigger, the PodSnapshot that it asks for and the SandboxSnapshot behind that have one name. */
export interface SnapshotObserved {
  readonly trigger: PodSnapshotManualTrigger | undefined;
  readonly snapshot: PodSnapshot | undefined;
  readonly saved: SandboxSnapshot | undefined;
  /** Looked up for a trigger that nothing was made for yet. */
  readonly target: Target | undefined;
  readonly nowMs: number;
}

/** One write. */
export type SnapshotAction =
  | { readonly do: "create-snapshot"; readonly object: PodSnapshot }
  | { readonly do: "create-saved"; readonly object: SandboxSnapshot }
  /** What it stood for was deleted. */
  | { readonly do: "delete-snapshot"; readonly uid: string }
  | { readonly do: "report-trigger"; readonly status: NonNullable<PodSnapshotManualTrigger["status"]> }
  | { readonly do: "report-snapshot"; readonly status: NonNullable<PodSnapshot["status"]> };

type Verdict = Pick<Condition, "status" | "reason" | "message">;

/** Decides the next write; the watch of what was written brings the next pass. */
export function planPodSnapshot(observed: SnapshotObserved): readonly SnapshotAction[] {
  const { snapshot } = observed;
  // The trigger comes last: who waits for it reads the PodSnapshot next.
  return [...(snapshot === undefined ? [] : planBehind(observed, snapshot)), ...planTrigger(observed)];
}

/** A trigger that has ended, well or not, is never carried out again: the PodSnapshot may have been deleted since. */
function planTrigger(observed: SnapshotObserved): readonly SnapshotAction[] {
  const { trigger, snapshot, target } = observed;
  if (trigger === undefined || trigger.metadata.deletionTimestamp !== undefined || hasEnded(trigger)) return [];
  const isMade = trigger.status?.snapshotCreated !== undefined;
  if (snapshot === undefined) {
    if (isMade) return reportTrigger(observed, trigger, failed("the PodSnapshot was deleted before it was complete"));
    if (target === undefined) return [];
    if (target.kind === "problem") return reportTrigger(observed, trigger, failed(target.message));
    return [{ do: "create-snapshot", object: newSnapshot(trigger, target) }];
  }
  if (snapshot.metadata.annotations?.[annotationKeys.triggeredBy] !== trigger.metadata.uid) {
    return reportTrigger(observed, trigger, failed(`there is another PodSnapshot "${snapshot.metadata.name}" already`));
  }
  const { status, reason, message } = verdictOf(observed, snapshot);
  if (status === "True") return reportTrigger(observed, trigger, { status, reason: "Complete", message });
  const isFinal = reason === "SnapshotFailed" || reason === "NameTaken";
  return reportTrigger(observed, trigger, isFinal ? failed(message) : { status, reason: "Saving", message });
}

function failed(message: string): Verdict {
  return { status: "False", reason: "Failed", message };
}

/** Whether nothing more comes of a trigger. */
export function hasEnded({ status }: PodSnapshotManualTrigger): boolean {
  const condition = findCondition(status?.conditions, "Triggered");
  return condition?.status === "True" || condition?.reason === "Failed";
}

function reportTrigger(
  { snapshot, nowMs }: SnapshotObserved,
  trigger: PodSnapshotManualTrigger,
  verdict: Verdict,
): readonly SnapshotAction[] {
  const conditions = upsertCondition(trigger.status?.conditions ?? [], { type: "Triggered", ...verdict }, nowMs);
  const isOwn = verdict.reason !== "Failed" && snapshot !== undefined;
  const made = isOwn ? { snapshotCreated: { name: snapshot.metadata.name } } : {};
  return [{ do: "report-trigger", status: { ...trigger.status, ...made, conditions: [...conditions] } }];
}

/** The status of a trigger that was refused. */
export function refusedTrigger(
  trigger: PodSnapshotManualTrigger,
  message: string,
  nowMs: number,
): NonNullable<PodSnapshotManualTrigger["status"]> {
  const conditions = upsertCondition(
    trigger.status?.conditions ?? [],
    { type: "Triggered", ...failed(message) },
    nowMs,
  );
  return { ...trigger.status, conditions: [...conditions] };
}

/** The SandboxSnapshot behind a PodSnapshot: made once, and the end of either is the end of both. */
function planBehind(observed: SnapshotObserved, snapshot: PodSnapshot): readonly SnapshotAction[] {
  const { saved, nowMs } = observed;
  if (snapshot.metadata.deletionTimestamp !== undefined) return [];
  const knownUid = snapshot.status?.snapshotUID;
  if (knownUid !== undefined && saved?.metadata.uid !== knownUid) {
    return [{ do: "delete-snapshot", uid: snapshot.metadata.uid ?? "" }];
  }
  if (saved === undefined) return [{ do: "create-saved", object: newSaved(snapshot) }];
  const verdict = { type: "Ready", ...verdictOf(observed, snapshot) };
  const conditions = [...upsertCondition(snapshot.status?.conditions ?? [], verdict, nowMs)];
  const isOwn = isControlledBy(saved, podSnapshots, snapshot);
  const snapshotUID = saved.metadata.uid ?? "";
  return [{ do: "report-snapshot", status: { conditions, ...(isOwn && { snapshotUID }) } }];
}

function verdictOf({ saved }: SnapshotObserved, snapshot: PodSnapshot): Verdict {
  if (saved === undefined) return { status: "False", reason: "Pending", message: "nothing is saved yet" };
  if (!isControlledBy(saved, podSnapshots, snapshot)) {
    const message = `SandboxSnapshot "${saved.metadata.name}" exists and was not made for this object, so it is left alone`;
    return { status: "False", reason: "NameTaken", message };
  }
  const { state, reason, message } = snapshotState(saved);
  return { status: state === "ready" ? "True" : "False", reason: reason === "" ? "Pending" : reason, message };
}

function newSnapshot(trigger: PodSnapshotManualTrigger, { sandbox, pod }: Target & { kind: "sandbox" }): PodSnapshot {
  const { name, namespace = "", uid = "" } = trigger.metadata;
  return {
    apiVersion: "podsnapshot.gke.io/v1",
    kind: "PodSnapshot",
    metadata: {
      name,
      namespace,
      labels: { [labelKeys.sandboxNameHash]: nameHash(sandbox.metadata.name) },
      annotations: {
        [podSnapshotAnnotations.originPod]: pod.metadata.name,
        [annotationKeys.triggeredBy]: uid,
      },
    },
    spec: { sandboxName: sandbox.metadata.name },
  };
}

function newSaved(snapshot: PodSnapshot): SandboxSnapshot {
  const { name, namespace = "" } = snapshot.metadata;
  return {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: { name, namespace, ownerReferences: [controllerReference(podSnapshots, snapshot)] },
    spec: { sandboxName: snapshot.spec.sandboxName, memory: true },
  };
}
