import type { Pod, Sandbox, SandboxSnapshot, SnapshotReason } from "@agent-sandbox/api";
import { recalledArchiveOf, snapshotState, upsertCondition } from "@agent-sandbox/api";
import { canSleepDeeply } from "../sandbox-suspension/effective-mode.ts";

/** Everything a pass over a snapshot looks at. */
export interface SnapshotObserved {
  readonly snapshot: SandboxSnapshot;
  /** The Sandbox that it names. */
  readonly sandbox: Sandbox | undefined;
  /** That Sandbox's own Pod. */
  readonly pod: Pod | undefined;
  readonly nowMs: number;
}

/** What a pass decides. */
export type SnapshotPlan =
  | { readonly kind: "idle" }
  /** Its time is up. */
  | { readonly kind: "delete"; readonly uid: string }
  /** Written only if nobody has written the snapshot since: a node that takes it comes first. */
  | { readonly kind: "keep"; readonly status?: NonNullable<SandboxSnapshot["status"]>; readonly expiresInMs?: number };

/** Decides; the status is the control plane's only as long as no node has taken the snapshot on (ADR 54). */
export function planSnapshot(observed: SnapshotObserved): SnapshotPlan {
  const { snapshot, nowMs } = observed;
  if (snapshot.metadata.deletionTimestamp !== undefined) return { kind: "idle" };
  const expiresMs = expiryMs(snapshot);
  if (expiresMs !== undefined && nowMs >= expiresMs) return { kind: "delete", uid: snapshot.metadata.uid ?? "" };
  const isPending = snapshotState(snapshot).state === "pending";
  return {
    kind: "keep",
    ...(isPending && { status: pendingStatus(observed) }),
    ...(expiresMs !== undefined && { expiresInMs: expiresMs - nowMs }),
  };
}

function expiryMs({ metadata, spec }: SandboxSnapshot): number | undefined {
  const bornMs = Date.parse(metadata.creationTimestamp ?? "");
  if (spec.ttlSecondsAfterCreation === undefined || Number.isNaN(bornMs)) return undefined;
  return bornMs + spec.ttlSecondsAfterCreation * 1000;
}

function pendingStatus(observed: SnapshotObserved): NonNullable<SandboxSnapshot["status"]> {
  const { snapshot, nowMs } = observed;
  const observedGeneration = snapshot.metadata.generation ?? 0;
  const verdict = { type: "Ready", status: "False", ...pendingReason(observed), observedGeneration } as const;
  const conditions = upsertCondition(snapshot.status?.conditions ?? [], verdict, nowMs);
  return { ...snapshot.status, observedGeneration, conditions: [...conditions] };
}

/** Why no node has taken it on. */
function pendingReason({ snapshot, sandbox, pod }: SnapshotObserved): {
  readonly reason: SnapshotReason;
  readonly message: string;
} {
  const name = `Sandbox "${snapshot.spec.sandboxName}"`;
  if (recalledArchiveOf(snapshot) !== undefined)
    return { reason: "NodePending", message: `waiting for the node that brings back what was archived of ${name}` };
  if (sandbox === undefined)
    return { reason: "SandboxNotFound", message: `there is no ${name} in the namespace of this snapshot` };
  if (sandbox.status?.podUID === undefined)
    return { reason: "SandboxNotStarted", message: `${name} has not started yet: there are no files to save` };
  if (pod !== undefined && !canSleepDeeply(pod)) {
    const message = `${name} runs on node "${pod.spec?.nodeName ?? ""}", which is not one of this engine under gVisor and saves nothing`;
    return { reason: "SnapshotsNotAvailable", message };
  }
  return { reason: "NodePending", message: `waiting for the node that has the files of ${name}` };
}
