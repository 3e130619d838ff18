import { codeOfGrpcStatus, codeOfHttpStatus, codeOfReason, type ErrorCode, errorCodes } from "./error-codes.gen.ts";

/** What a SandboxError may carry besides code and message. */
export interface SandboxErrorOptions {
  readonly cause?: unknown;
  /** The id under which server logs know the request, where one was sent. */
  readonly requestId?: string | undefined;
  /** The limit that ended the sandbox and with it the process. */
  readonly limit?: Limit | undefined;
}

/** A limit that ends a sandbox, by the name of its condition: memory, processes and threads, the machine's disk or memory. */
export type Limit = "OOMKilled" | "PidLimitReached" | "Evicted";

/** A message that says itself what to do needs no second advice. */
const saysWhatToDo = /; (start|run|name|use|resume|let) /;

/** The base class of every error that this SDK makes. A cancelled call rejects with its signal's reason instead. */
export class SandboxError extends Error {
  /** Of the class, not of each error: a stack is written with the name that is there when the error is made. */
  static {
    Object.defineProperty(this.prototype, "name", { value: "SandboxError" });
  }

  declare readonly name: string;
  readonly code: ErrorCode;
  declare readonly requestId: string | undefined;
  /** Of a `process-ended`: the limit that ended the sandbox; undefined where none did. */
  declare readonly limit: Limit | undefined;

  constructor(code: ErrorCode, message: string, { cause, requestId, limit }: SandboxErrorOptions = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    // Shown by printers of objects only where there is one.
    Object.defineProperty(this, "requestId", { value: requestId, enumerable: requestId !== undefined });
    Object.defineProperty(this, "limit", { value: limit, enumerable: limit !== undefined });
    // For an error that is not caught, a runtime prints the stack, which begins with the message alone.
    const head = `${this.name}: ${message}`;
    if (this.stack?.startsWith(head) === true) {
      this.stack = `${this.name}: ${this.advice}${this.stack.slice(head.length)}`;
    }
  }

  /** What to do about it, in one sentence. */
  get hint(): string {
    return errorCodes[this.code].hint;
  }

  /** The message, and what to do about it unless the message says so itself. */
  get advice(): string {
    // How a command ended is for its author to understand; the message has its exit code and the end of its output.
    const isComplete = saysWhatToDo.test(this.message) || this.code === "command-failed";
    return isComplete ? this.message : `${this.message}. ${this.hint}`;
  }

  /** Whether the same call may succeed later. It does not say that repeating it is harmless. */
  get isRetryable(): boolean {
    return errorCodes[this.code].retry;
  }
}

/** Whether `error` is a SandboxError with that code. */
export function isSandboxError(error: unknown, code?: ErrorCode): error is SandboxError {
  return error instanceof SandboxError && (code === undefined || error.code === code);
}

/** The code of an HTTP status that came without a better explanation. */
export function codeOfStatus(status: number): ErrorCode {
  return codeOfHttpStatus[status] ?? (status >= 500 ? "internal" : "protocol-error");
}

/** The code of a reason of a condition or a Status; undefined where the reason is not known. */
export function tryCodeOfReason(reason: string | undefined): ErrorCode | undefined {
  return reason === undefined ? undefined : codeOfReason[reason];
}

/** Connect spells gRPC's codes in words; these are their numbers. */
const grpcNumberOfName: Readonly<Record<string, number>> = {
  canceled: 1,
  unknown: 2,
  invalid_argument: 3,
  deadline_exceeded: 4,
  not_found: 5,
  already_exists: 6,
  permission_denied: 7,
  resource_exhausted: 8,
  failed_precondition: 9,
  aborted: 10,
  out_of_range: 11,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  data_loss: 15,
  unauthenticated: 16,
};

/** The code of an error of the Connect protocol (`not_found`) or of sandboxd's REST (`NOT_FOUND`). */
export function codeOfConnect(code: string | undefined): ErrorCode {
  return codeOfGrpcStatus[grpcNumberOfName[(code ?? "").toLowerCase()] ?? 2] ?? "internal";
}
