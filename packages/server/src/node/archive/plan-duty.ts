import type { ArchiveReason, SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import { archiveState, recalledArchiveOf, snapshotState, uidOf } from "@agent-sandbox/api";

/** Everything a pass over an archive looks at. */
export interface DutyObserved {
  readonly archive: SandboxArchive;
  readonly nodeName: string;
  /** Whether this node was given an archive. */
  readonly hasArchive: boolean;
  /** Whether the files of the archive's Sandbox are on this node. */
  readonly hasFiles: boolean;
  /** The snapshot of the name that the archive has noted. */
  readonly snapshot: SandboxSnapshot | undefined;
}

/** What there is to do for an archive on this node. */
export type ArchiveDuty =
  | { readonly do: "nothing" }
  /** This node is the one, and has no archive. */
  | { readonly do: "refuse" }
  /** Say that this node does it. */
  | { readonly do: "claim" }
  /** Look into the index for an archive that has lost its object. */
  | { readonly do: "adopt"; readonly archiveID: string }
  | { readonly do: "store"; readonly archiveID: string; readonly snapshot: SandboxSnapshot }
  | { readonly do: "bring-back"; readonly archiveID: string; readonly snapshot: SandboxSnapshot }
  | { readonly do: "remove"; readonly archiveIDs: readonly string[] };

/** Reasons with which the control plane asks for a node; one that refused may have been given an archive since. */
const asking: readonly string[] = ["NodePending", "NoArchive"] satisfies ArchiveReason[];

/** Decides what this node does next. What is discarded goes first: nothing of it is needed, and room may be. */
export function planDuty(observed: DutyObserved): ArchiveDuty {
  const { archive, nodeName, hasArchive } = observed;
  const { nodeName: taker, discarded = [] } = archive.status ?? {};
  if (taker === undefined) return planClaim(observed);
  if (taker !== nodeName) return { do: "nothing" };
  const duty: ArchiveDuty = discarded.length > 0 ? { do: "remove", archiveIDs: discarded } : planContent(observed);
  return duty.do !== "nothing" && !hasArchive ? { do: "refuse" } : duty;
}

function planClaim({ archive, hasArchive, hasFiles }: DutyObserved): ArchiveDuty {
  if (archive.metadata.deletionTimestamp !== undefined) return { do: "nothing" };
  const { archiveID } = archive.spec;
  // Any node with that archive will do, and one without may be another's neighbour that has it.
  if (archiveID !== undefined) return hasArchive ? { do: "adopt", archiveID } : { do: "nothing" };
  if (!hasFiles || !asking.includes(archiveState(archive).reason)) return { do: "nothing" };
  return { do: hasArchive ? "claim" : "refuse" };
}

function planContent({ archive, snapshot }: DutyObserved): ArchiveDuty {
  const { archiveID, snapshot: noted } = archive.status ?? {};
  if (archiveID === undefined || snapshot === undefined || noted?.uid !== uidOf(snapshot)) return { do: "nothing" };
  const { state } = snapshotState(snapshot);
  const recalled = recalledArchiveOf(snapshot);
  switch (archiveState(archive).step) {
    case "storing":
      return state === "ready" && recalled === undefined ? { do: "store", archiveID, snapshot } : { do: "nothing" };
    case "left":
      return state === "pending" && recalled === archiveID
        ? { do: "bring-back", archiveID, snapshot }
        : { do: "nothing" };
    case "pending":
    case "stored":
      return { do: "nothing" };
  }
}
