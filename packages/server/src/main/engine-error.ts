/** What kind of mistake it is; the command line has an exit code for each. */
export type EngineErrorCode =
  /** User: a flag that makes no sense. */
  | "usage"
  /** User: the caller, or the container it runs in, may not do that. */
  | "denied"
  /** User: something else is there already: another engine, another program on the port. */
  | "conflict"
  /** User: this machine cannot do that. */
  | "unsupported"
  /** User: the machine could, and has no room, no tool or a wrong clock. */
  | "failed"
  /** System: the engine is not there, or does not answer. */
  | "no-engine";

/** Thrown for what the user can mend; the command line prints its message alone. */
export class EngineError extends Error {
  override readonly name = "EngineError";
  readonly code: EngineErrorCode;

  constructor(message: string, options: { readonly code?: EngineErrorCode; readonly cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = options.code ?? "no-engine";
  }
}
