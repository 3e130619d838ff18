import type { Sandbox, SandboxArchive } from "@agent-sandbox/api";
import { archiveFinalizer, archiveState, jsonEqual, plainReference } from "@agent-sandbox/api";
import type { ArchiveObserved, ArchivePlan } from "./archive-plan.ts";
import { isEnding, recallOf } from "./archive-status.ts";
import { planAway } from "./plan-away.ts";
import { planEnd } from "./plan-end.ts";
import { planRecall } from "./plan-recall.ts";

/** Decides the next step of an archive (ADR 56). */
export function planArchive(observed: ArchiveObserved): ArchivePlan {
  const { archive, sandbox, stale } = observed;
  const ends = isEnding(archive);
  if (ends && archive.metadata.finalizers?.includes(archiveFinalizer) !== true) return { do: "wait" };
  const [left] = stale.filter((each) => !isEnding(each));
  if (left !== undefined) return { do: "delete-snapshot", snapshot: left };
  if (ends) return planEnd(observed);
  const metadata = preparation(archive, sandbox);
  if (metadata !== undefined) return { do: "prepare", metadata };
  // A Sandbox that is coming back is not called off any more.
  const isRecalled = archive.spec.recall === true || recallOf(sandbox, archive) !== undefined;
  return isRecalled ? planRecall(observed) : planAway(observed);
}

/** The owners are those of the Sandbox, so that the archive goes with them; they are taken over as long as nothing has begun. */
function preparation(archive: SandboxArchive, sandbox: Sandbox | undefined): Record<string, unknown> | undefined {
  const { finalizers = [], ownerReferences = [] } = archive.metadata;
  const isPending = archiveState(archive).step === "pending" && archive.spec.archiveID === undefined;
  const isTaken = isPending && sandbox !== undefined;
  const owners = isTaken ? (sandbox.metadata.ownerReferences ?? []).map(plainReference) : ownerReferences;
  const hasFinalizer = finalizers.includes(archiveFinalizer);
  if (hasFinalizer && jsonEqual([...owners], [...ownerReferences])) return undefined;
  return { finalizers: hasFinalizer ? finalizers : [...finalizers, archiveFinalizer], ownerReferences: owners };
}
