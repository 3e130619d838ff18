/** A refusal the router makes itself; `detail` is what the caller reads in `{"detail": ...}`. */
export class RoutingError extends Error {
  override readonly name = "RoutingError";
  readonly status: number;
  readonly retryAfterSeconds: number | undefined;
  /** The sandbox has seen nothing of the request: it may be sent to the next Pod without harm. */
  isUnsent = false;

  constructor(status: number, detail: string, options: { retryAfterSeconds?: number; cause?: unknown } = {}) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.status = status;
    this.retryAfterSeconds = options.retryAfterSeconds;
  }
}
