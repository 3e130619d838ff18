// The kinds of the published snapshot extension, which one machine serves in place of their vendor (ADR 58).

import type { PodSnapshot, PodSnapshotManualTrigger, PodSnapshotPolicy } from "./kinds.gen.ts";
import type { Resource } from "./resource.ts";

/** Group of the kinds of the published snapshot extension. */
export const podSnapshotGroup = "podsnapshot.gke.io";

const base = { group: podSnapshotGroup, version: "v1", namespaced: true } as const;

/** PodSnapshots. */
export const podSnapshots: Resource<PodSnapshot> = { ...base, kind: "PodSnapshot", resource: "podsnapshots" };

/** PodSnapshotManualTriggers. */
export const podSnapshotTriggers: Resource<PodSnapshotManualTrigger> = {
  ...base,
  kind: "PodSnapshotManualTrigger",
  resource: "podsnapshotmanualtriggers",
};

/** PodSnapshotPolicies. */
export const podSnapshotPolicies: Resource<PodSnapshotPolicy> = {
  ...base,
  kind: "PodSnapshotPolicy",
  resource: "podsnapshotpolicies",
};

/** Annotations of these kinds. */
export const podSnapshotAnnotations = {
  /** On a PodSnapshot: the Pod that was saved. */
  originPod: `${podSnapshotGroup}/origin-pod`,
  /** In a pod template: the snapshot that a suspended Sandbox is to wake from. */
  name: `${podSnapshotGroup}/ps-name`,
} as const;

/** Condition of a Pod that was started from a snapshot; its message names the snapshot. */
export const podRestoredCondition = "PodRestored";
