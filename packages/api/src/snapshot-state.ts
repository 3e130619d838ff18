import { findCondition } from "./condition.ts";
import type { SandboxSnapshot } from "./kinds.gen.ts";

/**
 * Reasons of the Ready condition of a SandboxSnapshot. Those of a snapshot that no node has taken on are the control plane's, the others the node's;
 * `SnapshotReady` and `SnapshotFailed` are final.
 */
export type SnapshotReason =
  /** Everything is on disk, checked and synced. */
  | "SnapshotReady"
  /** It could not be taken; nothing is tried again. */
  | "SnapshotFailed"
  /** The node that has the files saves them. */
  | "SnapshotSaving"
  /** There is no Sandbox of that name. */
  | "SandboxNotFound"
  /** The Sandbox has never had a Pod, so that there are no files. */
  | "SandboxNotStarted"
  /** The Sandbox runs on a node that saves nothing. */
  | "SnapshotsNotAvailable"
  /** The node that has the files has not answered. */
  | "NodePending";

/** How far a snapshot has come, with what its Ready condition says. */
export interface SnapshotState {
  readonly state: "pending" | "saving" | "ready" | "failed";
  /** Empty before there is a condition. */
  readonly reason: string;
  readonly message: string;
}

/** How far a snapshot has come, by its object alone. */
export function snapshotState({ status }: SandboxSnapshot): SnapshotState {
  const ready = findCondition(status?.conditions, "Ready");
  const told = { reason: ready?.reason ?? "", message: ready?.message ?? "" };
  if (ready?.status === "True") return { state: "ready", ...told };
  if (ready?.reason === ("SnapshotFailed" satisfies SnapshotReason)) return { state: "failed", ...told };
  return { state: status?.nodeName === undefined ? "pending" : "saving", ...told };
}
