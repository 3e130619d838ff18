/** Why an image could not be had; each code is marked *user* (name, credentials or content are at fault) or *system*. */
const imageErrorCodes = {
  /** The name is not an image reference. *user* */
  "invalid-name": "user",
  /** The registry has no such repository, tag or digest. *user* */
  "not-found": "user",
  /** The registry refuses these credentials, or wants some. *user* */
  unauthorized: "user",
  /** The image exists, but not for this machine's platform. *user* */
  "no-platform": "user",
  /** A manifest, configuration or archive is malformed or too large. *user* */
  malformed: "user",
  /** Content does not have the digest it is named by. *user* */
  "digest-mismatch": "user",
  /** The registry could not be reached or failed; worth another try. *system* */
  unavailable: "system",
  /** The image is in use by a container. *user* */
  "in-use": "user",
} as const satisfies Record<string, "user" | "system">;

/** One of the codes of `imageErrorCodes`. */
export type ImageErrorCode = keyof typeof imageErrorCodes;

/** An operation on an image failed. */
export class ImageError extends Error {
  override readonly name = "ImageError";
  readonly code: ImageErrorCode;

  constructor(code: ImageErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}
