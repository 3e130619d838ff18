import type { KubeObject } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { type Observed, type OwnerState, planCollection } from "./plan.ts";

function object(part: Partial<KubeObject["metadata"]> = {}): KubeObject {
  return { apiVersion: "v1", kind: "Pod", metadata: { name: "p", uid: "p", ...part } };
}

function owner(state: OwnerState["state"], uid: string = state): OwnerState {
  return { reference: { apiVersion: "v1", kind: "X", name: uid, uid }, state };
}

const deleting = { deletionTimestamp: "2026-01-01T00:00:00Z" };
const observed = (part: Partial<Observed>): Observed => ({ object: object(), owners: [], dependents: [], ...part });

test.each<[string, Partial<Observed>, unknown]>([
  ["no owners: stays", {}, []],
  ["a present owner: stays", { owners: [owner("present")] }, []],
  ["an owner of an unknown kind: stays", { owners: [owner("unknown")] }, []],
  [
    "all owners absent: deleted in background",
    { owners: [owner("absent")] },
    [{ do: "delete", propagationPolicy: "Background" }],
  ],
  [
    "one of two owners absent: loses that reference",
    { owners: [owner("absent"), owner("present")] },
    [{ do: "drop-owners", uids: ["absent"] }],
  ],
  [
    "absent and going owners beside a present one: loses both references",
    { owners: [owner("absent"), owner("deleting-dependents"), owner("present")] },
    [{ do: "drop-owners", uids: ["absent", "deleting-dependents"] }],
  ],
  [
    "owner in foreground deletion, no dependents: deleted in background",
    { owners: [owner("deleting-dependents")] },
    [{ do: "delete", propagationPolicy: "Background" }],
  ],
  [
    "owner in foreground deletion, own dependents: deleted in foreground",
    { owners: [owner("deleting-dependents")], dependents: [{ uid: "d", blocks: false }] },
    [{ do: "delete", propagationPolicy: "Foreground" }],
  ],
  [
    "absent owner, orphan finalizer: its dependents are orphaned",
    { object: object({ finalizers: ["orphan"] }), owners: [owner("absent")] },
    [{ do: "delete", propagationPolicy: "Orphan" }],
  ],
  ["deleting without our finalizers: left alone", { object: object(deleting), owners: [owner("absent")] }, []],
  [
    "foreground deletion with a blocking dependent: waits and visits",
    { object: object({ ...deleting, finalizers: ["foregroundDeletion"] }), dependents: [{ uid: "d", blocks: true }] },
    [{ do: "visit-dependents", uids: ["d"] }],
  ],
  [
    "foreground deletion with a dependent that does not block: goes",
    { object: object({ ...deleting, finalizers: ["foregroundDeletion"] }), dependents: [{ uid: "d", blocks: false }] },
    [
      { do: "visit-dependents", uids: ["d"] },
      { do: "drop-finalizer", finalizer: "foregroundDeletion" },
    ],
  ],
  [
    "foreground deletion without dependents: goes",
    { object: object({ ...deleting, finalizers: ["foregroundDeletion"] }) },
    [{ do: "drop-finalizer", finalizer: "foregroundDeletion" }],
  ],
  [
    "orphaning deletion: dependents are released first",
    { object: object({ ...deleting, finalizers: ["orphan"] }), dependents: [{ uid: "d", blocks: true }] },
    [{ do: "release-dependents" }, { do: "drop-finalizer", finalizer: "orphan" }],
  ],
])("planCollection: %s", (_title, part, actions) => {
  expect(planCollection(observed(part))).toEqual(actions);
});
