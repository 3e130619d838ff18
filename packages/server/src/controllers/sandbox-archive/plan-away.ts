import type { Sandbox, SandboxArchive } from "@agent-sandbox/api";
import {
  annotationKeys,
  archiveSnapshotName,
  archiveState,
  controllerOf,
  formatTimestamp,
  keptSandbox,
  semanticEqual,
  snapshotState,
} from "@agent-sandbox/api";
import { sandboxExpiry } from "../sandbox-expiry/plan.ts";
import { effectiveMode } from "../sandbox-suspension/effective-mode.ts";
import type { ArchiveObserved, ArchivePlan } from "./archive-plan.ts";
import {
  type ArchiveVerdict,
  archivedSandbox,
  discardedStatus,
  isEnding,
  isOwnSnapshot,
  tellUnless,
  toldStatus,
} from "./archive-status.ts";

/** Decides the next step of a Sandbox's way into the archive. */
export function planAway(observed: ArchiveObserved): ArchivePlan {
  switch (archiveState(observed.archive).step) {
    case "pending":
      return planBeginning(observed);
    case "storing":
    case "stored":
      return planStoring(observed);
    case "left":
      return planLeaving(observed);
  }
}

/** Nothing was written to the store. A node that can do it says so before an attempt begins, so that none is made for nothing. */
export function planBeginning(observed: ArchiveObserved): ArchivePlan {
  const { archive, sandbox, nowMs, newID } = observed;
  const { nodeName, address } = archive.status ?? {};
  const adopted = archive.spec.archiveID;
  if (adopted !== undefined) return planAdoption(archive, adopted, nowMs);
  const obstacle = obstacleOf(observed);
  if (obstacle !== undefined || sandbox === undefined) {
    const isIdle = archive.metadata.annotations?.[annotationKeys.archiveCause] === "inactivity";
    if (isIdle) return { do: "delete-archive" };
    return { do: "tell", status: toldStatus(archive, nowMs, obstacle ?? notFound(archive)) };
  }
  if (nodeName === undefined) {
    const message = "waiting for the node that has the files of the Sandbox";
    return tellUnless(archive, nowMs, ["NoArchive"], { reason: "NodePending", message });
  }
  const begun = toldStatus(archive, nowMs, {
    reason: "SnapshotPending",
    message: "a snapshot of the Sandbox is taken",
    archiveID: newID,
    sandboxUID: sandbox.metadata.uid ?? "",
    podUID: sandbox.status?.podUID ?? "",
    sandbox: keptSandbox(sandbox),
    address: address ?? addressOf(sandbox),
  });
  return { do: "tell", status: begun };
}

/** The node that found the entry in its archive's index has said what it is of. */
function planAdoption(archive: SandboxArchive, archiveID: string, nowMs: number): ArchivePlan {
  const { nodeName, archivedAt } = archive.status ?? {};
  if (nodeName === undefined || archivedAt === undefined) {
    const message = `waiting for a node whose archive has "${archiveID}" of a Sandbox of this name`;
    return tellUnless(archive, nowMs, ["SandboxNotFound", "StoreFailed"], { reason: "NodePending", message });
  }
  const leftAt = formatTimestamp(nowMs);
  return { do: "tell", status: toldStatus(archive, nowMs, { ...archivedVerdict, archiveID, leftAt }) };
}

/** The Sandbox is what counts: whatever happens to it, the attempt is given up for it. */
function planStoring(observed: ArchiveObserved): ArchivePlan {
  const { archive, snapshot, nowMs } = observed;
  const { archiveID = "", archivedAt, snapshot: noted } = archive.status ?? {};
  if (!isAsNoted(observed)) return discard(observed);
  if (archivedAt !== undefined) {
    const message = "the content is in the store, and the Sandbox is deleted";
    const status = toldStatus(archive, nowMs, { reason: "SandboxLeaving", message, leftAt: formatTimestamp(nowMs) });
    return { do: "tell", status };
  }
  if (snapshot === undefined) return { do: "make-snapshot", name: archiveSnapshotName(archiveID) };
  const { name, uid = "" } = snapshot.metadata;
  if (!isOwnSnapshot(snapshot, archive)) return { do: "tell", status: toldStatus(archive, nowMs, nameTaken(name)) };
  if (noted?.uid !== uid)
    return { do: "tell", status: toldStatus(archive, nowMs, { ...taking, snapshot: { name, uid } }) };
  const { state, message } = snapshotState(snapshot);
  switch (state) {
    case "pending":
    case "saving":
      return { do: "tell", status: toldStatus(archive, nowMs, taking) };
    case "failed": {
      const verdict = { reason: "ArchiveFailed", message: `the snapshot failed: ${message}` } as const;
      return { do: "tell", status: toldStatus(archive, nowMs, verdict) };
    }
    case "ready": {
      const storing = { reason: "Storing", message: "the node writes the content to the store" } as const;
      return tellUnless(archive, nowMs, ["StoreFailed", "NoArchive"], storing);
    }
  }
}

/** The archive is what counts once the Sandbox has gone; until then the Sandbox does, if it has changed after all. */
function planLeaving(observed: ArchiveObserved): ArchivePlan {
  const { archive, sandbox, snapshot, nowMs } = observed;
  const present = archivedSandbox(sandbox, archive);
  // Its end waits for a finalizer of somebody else.
  if (isEnding(present)) return { do: "wait" };
  if (present !== undefined) {
    return isAsNoted(observed) ? { do: "delete-sandbox", sandbox: present } : discard(observed);
  }
  if (snapshot !== undefined && isOwnSnapshot(snapshot, archive)) {
    return isEnding(snapshot) ? { do: "wait" } : { do: "delete-snapshot", snapshot };
  }
  return { do: "tell", status: toldStatus(archive, nowMs, archivedVerdict) };
}

function discard({ archive, sandbox, nowMs }: ArchiveObserved): ArchivePlan {
  const verdict =
    sandbox === undefined
      ? notFound(archive)
      : ({
          reason: "SandboxAwake",
          message: "the Sandbox has changed or run since: this attempt is discarded",
        } as const);
  return { do: "tell", status: discardedStatus(archive, nowMs, verdict) };
}

/** Whether the Sandbox is still the one that the attempt began with: it sleeps, has had no other Pod since, and would come back as it is. */
function isAsNoted(observed: ArchiveObserved): boolean {
  const { archive } = observed;
  const sandbox = archivedSandbox(observed.sandbox, archive);
  if (sandbox === undefined || obstacleOf(observed) !== undefined) return false;
  const { podUID, sandbox: kept } = archive.status ?? {};
  return sandbox.status?.podUID === podUID && semanticEqual(keptSandbox(sandbox), kept);
}

/** Why the Sandbox cannot be archived as it is. */
function obstacleOf({ archive, sandbox, pods, nowMs }: ArchiveObserved): ArchiveVerdict | undefined {
  if (sandbox === undefined || isEnding(sandbox)) return notFound(archive);
  const name = `Sandbox "${sandbox.metadata.name}"`;
  const owner = controllerOf(sandbox);
  if (owner !== undefined) {
    const message = `${name} is controlled by ${owner.kind} "${owner.name}", which would make another in its place`;
    return { reason: "SandboxIsControlled", message };
  }
  if (sandbox.status?.podUID === undefined) {
    return { reason: "SandboxNotStarted", message: `${name} has not started yet: there is nothing to archive` };
  }
  if (!isAsleep(sandbox, pods.length, nowMs)) {
    const message = `${name} is archived once it is stopped or hibernated; suspend it, or wait until it sleeps`;
    return { reason: "SandboxAwake", message };
  }
  return undefined;
}

/** Whether it sleeps without a Pod; one that is frozen has its Pod. */
export function isAsleep(sandbox: Sandbox, podCount: number, nowMs: number): boolean {
  // What goes back to a snapshot of its own has two sets of files until it runs.
  if (podCount > 0 || sandbox.status?.restart !== undefined || sandboxExpiry(sandbox, nowMs).expired) return false;
  return effectiveMode(sandbox, nowMs).mode === "Suspended";
}

/** What clients knew it by. */
function addressOf({ metadata, status }: Sandbox): string[] {
  const { serviceFQDN, podIPs = [] } = status ?? {};
  const own = metadata.annotations?.[annotationKeys.address];
  const known = [serviceFQDN, own, ...podIPs].filter((each) => each !== undefined && each !== "");
  return [...new Set(known)] as string[];
}

const archivedVerdict = {
  reason: "Archived",
  message: "the content is in the store; set spec.recall to bring the Sandbox back",
} as const;

const taking = { reason: "SnapshotPending", message: "a snapshot of the Sandbox is taken" } as const;

function notFound({ metadata }: SandboxArchive): ArchiveVerdict {
  return { reason: "SandboxNotFound", message: `there is no Sandbox "${metadata.name}" in this namespace` };
}

/** Somebody else has made a snapshot of the name that this archive needs. */
export function nameTaken(name: string): ArchiveVerdict {
  return { reason: "NameTaken", message: `SandboxSnapshot "${name}" is not of this archive; delete it` };
}
