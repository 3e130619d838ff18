/** A container of a saved sandbox. */
export interface SavedContainer {
  /** The id that it had when it was saved; `restoreFrom.container` names it. */
  readonly id: string;
  /** Whether it is the sandbox's root container, which is restored first. */
  readonly root: boolean;
}

/** The memory of a sandbox on disk: whole, checked and synced, with the files that it wrote to synced at the same standstill. */
export interface SavedState {
  readonly id: string;
  /** RFC 3339: when the guest stopped. */
  readonly takenAt: string;
  /** What it takes on the disk. */
  readonly memoryBytes: number;
  /** From the guest's stop until the state was complete. */
  readonly standstillMs: number;
  /** The build of runsc, its version and digest, that made it. Only that one restores it, and it stays installed until the state is discarded. */
  readonly runtimeVersion: string;
  /** The root container first. */
  readonly containers: readonly SavedContainer[];
  /** It may be restored more than once; absent: once, on the files that it was saved with. */
  readonly reusable?: boolean;
  /** Why this machine cannot restore it, as far as can be told before the attempt: the build of runsc is missing, the processor is another, or the guest has gone on since. Absent: nothing is known against it. */
  readonly unusable?: string;
}

/** A sandbox to save. */
export interface SaveSandboxRequest {
  /** Its root container. */
  readonly id: string;
  /** Name of the saved state: `idPattern`. */
  readonly saved: string;
  /** The caller clones the files before it continues the sandbox, and restores onto clones: the state may then be restored more than once. Default: false. */
  readonly reusable?: boolean;
}

/** A paused sandbox that is to go on. */
export interface ContinueSandboxRequest {
  /** Its root container. */
  readonly id: string;
  /** A saved state that is discarded, durably, before any process goes on: its memory does not fit the files any more after that. */
  readonly saved?: string;
}

/** A saved state that gets a second name. */
export interface CopySavedRequest {
  readonly from: string;
  readonly to: string;
}

/** What a container is started from instead of its program. */
export interface RestoreSource {
  /** A saved state's id. */
  readonly saved: string;
  /** Which of its containers: the id that this one had then. */
  readonly container: string;
}
