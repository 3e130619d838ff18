/**
 * What went wrong at the edge to the store. *user*: the caller's request cannot be met as asked.
 * *system*: the machine or the file needs attention.
 */
export type StoreErrorCode =
  /** *user*: the key is not at the expected revision; `currentRevision` says where it is (0: it does not exist). */
  | "conflict"
  /** *user*: the revision asked for is older than the compacted revision; list again. */
  | "compacted"
  /** *user*: the revision asked for has not been written yet. */
  | "future-revision"
  /** *user*: the watcher fell further behind than its buffer holds; list again. */
  | "overflow"
  /** *user*: the store has been closed. */
  | "closed"
  /** *system*: another process has this file open. */
  | "locked"
  /** *system*: the disk, or the limit on the file, is full; nothing of the write was kept. */
  | "full"
  /** *system*: the file or its file system cannot be written. */
  | "read-only"
  /** *system*: the file is damaged or is not a store. */
  | "corrupt"
  /** *system*: any other failure of the disk or the writer; the store takes no more writes until it is opened again. */
  | "failed";

/** Details of a `StoreError`. */
export interface StoreErrorOptions extends ErrorOptions {
  readonly currentRevision?: number;
}

/** A failure of the store; `code` says which. */
export class StoreError extends Error {
  override readonly name = "StoreError";
  readonly code: StoreErrorCode;
  /** For `conflict`: the key's revision, 0 when it does not exist. */
  readonly currentRevision: number | undefined;

  constructor(code: StoreErrorCode, message: string, options: StoreErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.currentRevision = options.currentRevision;
  }
}
