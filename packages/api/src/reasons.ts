/**
 * Reasons of a Sandbox's Ready condition. The controller writes no other, and `sandboxPhase` decides by them.
 * `SandboxRestoring` and `RestoreFailed` belong to snapshots, which no engine takes yet.
 */
export type ReadyReason =
  | "DependenciesReady"
  | "DependenciesNotReady"
  | "ReconcilerError"
  | "SandboxSuspended"
  | "SandboxExpired"
  | "SandboxRestoring"
  | "RestoreFailed"
  | "PodSucceeded"
  | "PodFailed"
  | "MultiplePods"
  | "InvalidConfiguration"
  | "InvalidMetadata";

/** Reasons of a Sandbox's Suspended condition. Those of frozen, hibernated and archived Sandboxes are read and not written yet. */
export type SuspendedReason =
  | "NotSuspended"
  | "SuspensionStrategyNotAvailable"
  | "PodStateUnknown"
  | "PodNotOwned"
  | "PodTerminating"
  | "PodTerminated"
  | "PodFrozen"
  | "PodHibernated"
  | "SandboxArchived";
