import type { SandboxSnapshot } from "@agent-sandbox/api/kinds.gen";
import { snapshotState } from "@agent-sandbox/api/snapshot-state";

/** How far a snapshot has come; `ready` and `failed` are final. */
export type SnapshotStateName = "pending" | "saving" | "ready" | "failed";

/** A snapshot, described. */
export interface SnapshotInfo {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  /** Name of the sandbox that it was taken of. */
  readonly sandbox: string;
  readonly state: SnapshotStateName;
  /** Why it is in that state, in one word, as its Ready condition says. */
  readonly reason: string;
  /** What that condition says. */
  readonly message: string;
  readonly createdAt: Date | undefined;
  /** The instant that the state is from; undefined before it is ready. */
  readonly takenAt: Date | undefined;
  /** Size of everything that was saved. */
  readonly sizeBytes: number | undefined;
  /** Size of the saved memory; undefined where only files were saved. */
  readonly memorySizeBytes: number | undefined;
  /** How long the sandbox stood still while it was saved. */
  readonly standstillMs: number | undefined;
  /** The snapshot that the sandbox itself was started from. */
  readonly parent: string | undefined;
  readonly node: string | undefined;
}

/** Describes a SandboxSnapshot object. */
export function snapshotInfo(object: SandboxSnapshot): SnapshotInfo {
  const { metadata, spec, status } = object;
  return {
    name: metadata.name,
    namespace: metadata.namespace ?? "",
    uid: metadata.uid ?? "",
    sandbox: spec.sandboxName,
    ...snapshotState(object),
    createdAt: instant(metadata.creationTimestamp),
    takenAt: instant(status?.takenAt),
    sizeBytes: status?.sizeBytes,
    memorySizeBytes: status?.memorySizeBytes,
    standstillMs: status?.standstillMs,
    parent: status?.parent?.name,
    node: status?.nodeName,
  };
}

function instant(text: string | undefined): Date | undefined {
  return text === undefined ? undefined : new Date(text);
}
