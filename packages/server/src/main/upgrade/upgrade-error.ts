/** Why an upgrade was refused or undone, and what is at fault; the message says what to do. */
const upgradeErrorCodes = {
  /** There is no such file, or it cannot be read. */
  "file-missing": "the file",
  /** The file is cut off, damaged or something else. */
  "not-a-release": "the file",
  /** A release for other machines, or one that does not run here. */
  "wrong-machine": "the file",
  /** More than one version back, or another file with the same version. */
  "wrong-version": "the version",
  /** The data is of a format that the release does not read. */
  "data-too-new": "the data",
  /** What runs was not installed from a tarball. */
  "not-from-a-tarball": "the installation",
  /** Another upgrade is under way. */
  busy: "the installation",
  /** The release was tried and did not start; the one before runs again. */
  "rolled-back": "the release",
  /** Neither was there within the limit. */
  timeout: "the release",
} as const;

/** One of them. */
export type UpgradeErrorCode = keyof typeof upgradeErrorCodes;

/** Thrown where an upgrade does not take place. */
export class UpgradeError extends Error {
  override readonly name = "UpgradeError";
  readonly code: UpgradeErrorCode;
  readonly fault: string;

  constructor(code: UpgradeErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.fault = upgradeErrorCodes[code];
  }
}
