import type { ArchiveObserved, ArchivePlan } from "./archive-plan.ts";
import { archivedSandbox, discardedStatus, isEnding, recallOf, tellUnless, toldStatus } from "./archive-status.ts";

/** Decides the next step of an archive that is being deleted: its content goes, unless a Sandbox is about to start from it. */
export function planEnd(observed: ArchiveObserved): ArchivePlan {
  const { archive, sandbox, nowMs } = observed;
  const { archiveID, leftAt, discarded = [] } = archive.status ?? {};
  if (!isEnding(sandbox) && recallOf(sandbox, archive) === "starting") {
    const message = "the content is removed once the Sandbox has started from it";
    return { do: "tell", status: toldStatus(archive, nowMs, { reason: "Recalling", message }) };
  }
  if (archiveID !== undefined) {
    const status = discardedStatus(archive, nowMs, removing);
    const present = archivedSandbox(sandbox, archive);
    const isStaying = leftAt !== undefined && present !== undefined && !isEnding(present);
    return isStaying ? { do: "call-off", sandbox: present, status } : { do: "tell", status };
  }
  if (discarded.length > 0) return tellUnless(archive, nowMs, ["NoArchive", "StoreFailed"], removing);
  return { do: "release" };
}

const removing = { reason: "Removing", message: "the content is removed from the store" } as const;
