import { findCondition } from "./condition.ts";
import type { SandboxArchive, SandboxSnapshot } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";

/**
 * Reasons of the Ready condition of a SandboxArchive. `NoArchive`, `StoreFailed` and `RecallFailed` are also the node's, the others the control plane's.
 */
export type ArchiveReason =
  /** The content is in the store, and the Sandbox has left. */
  | "Archived"
  /** There is no Sandbox of that name. */
  | "SandboxNotFound"
  /** The Sandbox runs, is frozen, or is on its way into sleep; it is archived once it is stopped or hibernated. */
  | "SandboxAwake"
  /** The Sandbox has never had a Pod, so that there is nothing to archive. */
  | "SandboxNotStarted"
  /** A claim or a pool controls the Sandbox, and would make another in its place. */
  | "SandboxIsControlled"
  /** The node that has the files has not answered. */
  | "NodePending"
  /** The engine of the node that has the files was given no archive. */
  | "NoArchive"
  /** A snapshot of the Sandbox is taken. */
  | "SnapshotPending"
  /** The node writes the content to the store. */
  | "Storing"
  /** The snapshot failed; nothing is tried before the Sandbox has run again. */
  | "ArchiveFailed"
  /** The content could not be written; the node tries again. */
  | "StoreFailed"
  /** The Sandbox is being deleted. */
  | "SandboxLeaving"
  /** The content is read from the store, or the Sandbox starts from it. */
  | "Recalling"
  /** The content could not be read, or the Sandbox could not be started from it; nothing of it is lost. */
  | "RecallFailed"
  /** Another Sandbox has the name. */
  | "NameTaken"
  /** The content is removed from the store. */
  | "Removing";

/** How far an archive has come. */
export type ArchiveStep =
  /** Nothing was written to the store. */
  | "pending"
  /** Content is made and written; the Sandbox is what counts. */
  | "storing"
  /** The content is complete and its entry is in the index; the Sandbox is still what counts. */
  | "stored"
  /** The archive is what there is of the Sandbox. */
  | "left";

/** How far an archive has come, with what its Ready condition says. */
export interface ArchiveState {
  readonly step: ArchiveStep;
  /** Empty before there is a condition. */
  readonly reason: string;
  readonly message: string;
}

/** How far an archive has come, by its object alone. */
export function archiveState({ status }: SandboxArchive): ArchiveState {
  const ready = findCondition(status?.conditions, "Ready");
  return { step: stepOf(status), reason: ready?.reason ?? "", message: ready?.message ?? "" };
}

function stepOf(status: SandboxArchive["status"]): ArchiveStep {
  if (status?.archiveID === undefined) return "pending";
  if (status.leftAt !== undefined) return "left";
  return status.archivedAt === undefined ? "storing" : "stored";
}

/** What the snapshot of an archive is called, on the way there and back. */
export function archiveSnapshotName(archiveID: string): string {
  return `archive-${archiveID}`;
}

/** The archive whose content a snapshot's files are; undefined where a node takes it of a Sandbox. */
export function recalledArchiveOf({ metadata }: SandboxSnapshot): string | undefined {
  return metadata.annotations?.[annotationKeys.recallOf];
}
