/** Why an archive could not be written or read; each code is marked *user* (settings or content are at fault) or *system*. */
const archiveErrorCodes = {
  /** The store has no such object, or this node no such snapshot. *user* */
  "not-found": "user",
  /** The store refuses these credentials, or the directory this user. *user* */
  denied: "user",
  /** What is stored is not what was written. *user* */
  damaged: "user",
  /** The settings name no place that could be a store. *user* */
  invalid: "user",
  /** The store could not be reached or failed; worth another try. *system* */
  unavailable: "system",
} as const satisfies Record<string, "user" | "system">;

/** One of the codes of `archiveErrorCodes`. */
type ArchiveErrorCode = keyof typeof archiveErrorCodes;

/** An operation on an archive failed. */
export class ArchiveError extends Error {
  override readonly name = "ArchiveError";
  readonly code: ArchiveErrorCode;

  constructor(code: ArchiveErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}
