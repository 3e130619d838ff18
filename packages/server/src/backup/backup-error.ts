/** Why a backup cannot be written, read or restored; all of them are for the user to act on. */
export type BackupErrorCode =
  /** The file is not one of ours. */
  | "not-a-backup"
  /** It ends early, or its bytes are not those that were written. */
  | "damaged"
  /** It is encrypted and the passphrase is missing or another one. */
  | "passphrase"
  /** The user is not root. */
  | "denied"
  /** It was written by another version, whose format this one does not read. */
  | "unsupported"
  /** The place to write to has something already. */
  | "exists"
  /** A file or directory cannot be read or written, or the disk is full. */
  | "file"
  /** Something of the engine could not be had. */
  | "engine";

/** Thrown for what the user can mend; the message is complete. */
export class BackupError extends Error {
  override readonly name = "BackupError";
  readonly code: BackupErrorCode;

  constructor(code: BackupErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** A file system's refusal in words; a full disk is named as such. */
export function fileError(doing: string, cause: unknown): BackupError {
  if (cause instanceof BackupError) return cause;
  const { code, message } = cause as NodeJS.ErrnoException;
  const why =
    code === "ENOSPC" || code === "EDQUOT"
      ? "the disk is full; make room, or choose another place"
      : code === "EACCES" || code === "EPERM"
        ? "permission denied; run it again as root, or choose another place"
        : message;
  return new BackupError("file", `${doing}: ${why}`, { cause });
}
