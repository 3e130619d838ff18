/**
 * Reasons of a Sandbox's Ready condition. The controller writes no other, and `sandboxPhase` decides by them.
 * `SandboxRestoring` and `RestoreFailed` are of one that wakes from saved memory.
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

/** Reasons of a Sandbox's Suspended condition. `SandboxArchived` is read and not written yet. */
export type SuspendedReason =
  | "NotSuspended"
  | "SuspensionStrategyNotAvailable"
  | "PodStateUnknown"
  | "PodNotOwned"
  | "PodTerminating"
  | "PodTerminated"
  | "PodFreezing"
  | "PodFrozen"
  | "PodHibernating"
  | "PodHibernated"
  | "SuspensionFailed"
  | "SandboxArchived";
