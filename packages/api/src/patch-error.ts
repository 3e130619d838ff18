/**
 * Why a patch cannot be applied. All codes are the user's:
 * `malformed`: the patch itself makes no sense;
 * `missing`: it names something that the object does not have;
 * `test-failed`: a test operation found another value.
 */
type PatchErrorCode = "malformed" | "missing" | "test-failed";

/** A patch that cannot be applied to this object. */
export class PatchError extends Error {
  override readonly name = "PatchError";
  readonly code: PatchErrorCode;

  constructor(code: PatchErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
