import type { Sandbox, SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import {
  archiveSnapshotName,
  archiveState,
  findCondition,
  hasReadyReason,
  sandboxToRecall,
  snapshotState,
} from "@agent-sandbox/api";
import type { ArchiveObserved, ArchivePlan } from "./archive-plan.ts";
import { archivedSandbox, isEnding, isOwnSnapshot, recallOf, tellUnless, toldStatus } from "./archive-status.ts";
import { nameTaken, planBeginning } from "./plan-away.ts";

/** Decides the next step of a Sandbox's way back. */
export function planRecall(observed: ArchiveObserved): ArchivePlan {
  const { archive, sandbox } = observed;
  if (archiveState(archive).step !== "left") {
    // What has not left is not brought back: the attempt ends with its object.
    return archive.spec.archiveID === undefined ? { do: "delete-archive" } : planBeginning(observed);
  }
  const present = archivedSandbox(sandbox, archive);
  // Its end waits for a finalizer of somebody else.
  if (present !== undefined) return isEnding(present) ? { do: "wait" } : { do: "delete-archive" };
  if (sandbox === undefined) return planFetching(observed);
  switch (recallOf(sandbox, archive)) {
    case "started":
      return { do: "delete-archive" };
    case "starting":
      return { do: "tell", status: toldStatus(archive, observed.nowMs, startVerdict(sandbox)) };
    case undefined: {
      const message = `another Sandbox has the name "${archive.metadata.name}"; delete it to have the archived one back`;
      return { do: "tell", status: toldStatus(archive, observed.nowMs, { reason: "NameTaken", message }) };
    }
  }
}

/** No Sandbox has the name: the content becomes a snapshot of the node, and the Sandbox is made to start from it. */
function planFetching(observed: ArchiveObserved): ArchivePlan {
  const { archive, snapshot, nowMs } = observed;
  const { archiveID = "" } = archive.status ?? {};
  if (snapshot === undefined) {
    return { do: "make-snapshot", name: archiveSnapshotName(archiveID), recallOf: archiveID };
  }
  const { name, uid = "" } = snapshot.metadata;
  if (isEnding(snapshot)) return { do: "wait" };
  if (!isOwnSnapshot(snapshot, archive)) return { do: "tell", status: toldStatus(archive, nowMs, nameTaken(name)) };
  if (archive.status?.snapshot?.uid !== uid) {
    return { do: "tell", status: toldStatus(archive, nowMs, { ...fetching, snapshot: { name, uid } }) };
  }
  return planStarting(archive, snapshot, nowMs);
}

function planStarting(archive: SandboxArchive, snapshot: SandboxSnapshot, nowMs: number): ArchivePlan {
  const { state } = snapshotState(snapshot);
  switch (state) {
    case "pending":
    case "saving":
      return tellUnless(archive, nowMs, ["RecallFailed", "NoArchive"], fetching);
    case "failed":
      return { do: "delete-snapshot", snapshot };
    case "ready": {
      const sandbox = sandboxToRecall(archive, snapshot.metadata.name, nowMs);
      if (sandbox !== undefined) return { do: "make-sandbox", sandbox };
      const message = "status.sandbox is no Sandbox of this name and namespace";
      return { do: "tell", status: toldStatus(archive, nowMs, { reason: "RecallFailed", message }) };
    }
  }
}

function startVerdict(sandbox: Sandbox): { readonly reason: "Recalling" | "RecallFailed"; readonly message: string } {
  if (!hasReadyReason(sandbox, "RestoreFailed")) {
    return { reason: "Recalling", message: "the Sandbox starts from what was archived" };
  }
  const why = findCondition(sandbox.status?.conditions, "Ready")?.message ?? "";
  return { reason: "RecallFailed", message: `the Sandbox could not be started: ${why}` };
}

const fetching = { reason: "Recalling", message: "the content is read from the store" } as const;
