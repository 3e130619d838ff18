import type { ArchiveReason, KubeObject, Sandbox, SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import { archiveState, isControlledBy, sandboxArchives, upsertCondition } from "@agent-sandbox/api";

/** The status of an archive. */
export type ArchiveStatus = NonNullable<SandboxArchive["status"]>;

/** What the Ready condition is to say. */
export interface ArchiveVerdict {
  readonly reason: ArchiveReason;
  readonly message: string;
}

/** The status with these fields and what its Ready condition says then. */
export function toldStatus(
  { metadata, status }: SandboxArchive,
  nowMs: number,
  { reason, message, ...fields }: ArchiveVerdict & Partial<ArchiveStatus>,
): ArchiveStatus {
  const observedGeneration = metadata.generation ?? 0;
  const isTrue = reason === "Archived";
  const verdict = { type: "Ready", status: isTrue ? "True" : "False", reason, message, observedGeneration } as const;
  const conditions = [...upsertCondition(status?.conditions ?? [], verdict, nowMs)];
  return { ...status, ...fields, observedGeneration, conditions };
}

/** Says it, unless the node has said what keeps it from the same step, which is more. */
export function tellUnless(
  archive: SandboxArchive,
  nowMs: number,
  nodeReasons: readonly ArchiveReason[],
  verdict: ArchiveVerdict,
): { readonly do: "wait" } | { readonly do: "tell"; readonly status: ArchiveStatus } {
  const { reason } = archiveState(archive);
  if (nodeReasons.some((each) => each === reason)) return { do: "wait" };
  return { do: "tell", status: toldStatus(archive, nowMs, verdict) };
}

/** The status without the present attempt, whose content, if there is any, is to be removed. */
export function discardedStatus(archive: SandboxArchive, nowMs: number, verdict: ArchiveVerdict): ArchiveStatus {
  const { conditions, nodeName, archiveID, discarded = [] } = archive.status ?? {};
  const ids = archiveID === undefined ? discarded : [...discarded, archiveID];
  const left: ArchiveStatus = {
    ...(conditions !== undefined && { conditions }),
    ...(nodeName !== undefined && { nodeName }),
    ...(ids.length > 0 && { discarded: ids }),
  };
  return toldStatus({ ...archive, status: left }, nowMs, verdict);
}

/** Whether a snapshot was made for this archive. */
export function isOwnSnapshot(snapshot: SandboxSnapshot, archive: SandboxArchive): boolean {
  return isControlledBy(snapshot, sandboxArchives, archive) && snapshot.spec.sandboxName === archive.metadata.name;
}

/** The Sandbox, where it is the one that is archived. */
export function archivedSandbox(sandbox: Sandbox | undefined, { status }: SandboxArchive): Sandbox | undefined {
  return status?.sandboxUID !== undefined && sandbox?.metadata.uid === status.sandboxUID ? sandbox : undefined;
}

/** Whether somebody is deleting an object that is there. */
export function isEnding(object: KubeObject | undefined): boolean {
  return object?.metadata.deletionTimestamp !== undefined;
}

/** How far the Sandbox has come that an archive brings back; undefined where there is none. One that has started needs the archive no more. */
export function recallOf(sandbox: Sandbox | undefined, { status }: SandboxArchive): "starting" | "started" | undefined {
  const snapshot = status?.snapshot;
  if (sandbox === undefined || snapshot === undefined || sandbox.metadata.uid === status?.sandboxUID) return undefined;
  if (sandbox.spec.restoreFrom?.snapshotName !== snapshot.name) return undefined;
  const { restoredFrom } = sandbox.status ?? {};
  return restoredFrom?.uid === snapshot.uid && restoredFrom.startedAt !== undefined ? "started" : "starting";
}
