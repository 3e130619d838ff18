/** Thrown for what the user can mend; the command line prints its message alone. */
export class EngineError extends Error {
  override readonly name = "EngineError";
}
