import { statusOfReason } from "./api-reasons.gen.ts";
import type { ErrorCause, ErrorDetails, StatusObject } from "./meta.ts";

/** Why a request failed. */
export type Reason = keyof typeof statusOfReason;

/** The one error of the Kubernetes wire: it is a `Status` and becomes one again. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly reason: Reason;
  readonly status: number;
  readonly details: ErrorDetails | undefined;

  constructor(reason: Reason, message: string, options: ApiErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.reason = reason;
    this.status = options.status ?? statusOfReason[reason];
    this.details = options.details;
  }

  /** Seconds after which the server says a retry makes sense. */
  get retryAfterSeconds(): number | undefined {
    return this.details?.retryAfterSeconds;
  }

  /** The wire form. */
  toStatus(): StatusObject {
    return {
      apiVersion: "v1",
      kind: "Status",
      metadata: {},
      status: "Failure",
      message: this.message,
      ...(this.reason === "Unknown" ? {} : { reason: this.reason }),
      ...(this.details === undefined ? {} : { details: this.details }),
      code: this.status,
    };
  }

  /** The error that a wire Status tells of; `httpStatus` decides where the Status says nothing. */
  static fromStatus(status: Partial<StatusObject>, httpStatus: number): ApiError {
    const code = status.code ?? httpStatus;
    const reason = isReason(status.reason) ? status.reason : reasonOfStatus(code);
    return new ApiError(reason, status.message ?? `the server answered ${code} without a message`, {
      status: code,
      ...(status.details === undefined ? {} : { details: status.details }),
    });
  }
}

/** What an ApiError may carry besides reason and message. */
interface ApiErrorOptions {
  readonly status?: number;
  readonly details?: ErrorDetails;
  readonly cause?: unknown;
}

/** The object that an error is about. `resource` is the plural of the URL. */
interface ErrorSubject {
  readonly group?: string;
  readonly resource: string;
  readonly name: string;
}

function isReason(reason: string | undefined): reason is Reason {
  return reason !== undefined && Object.hasOwn(statusOfReason, reason);
}

function reasonOfStatus(status: number): Reason {
  // 409, 410 and 504 have two reasons each; the first listed is what a client can act on without more knowledge.
  if (status === 409) return "Conflict";
  const found = Object.entries(statusOfReason).find(([, code]) => code === status);
  return isReason(found?.[0]) ? found[0] : "Unknown";
}

function qualified(subject: ErrorSubject): string {
  const { group, resource } = subject;
  return group === undefined || group === "" ? resource : `${resource}.${group}`;
}

function detailsOf(subject: ErrorSubject, rest: ErrorDetails = {}): ErrorDetails {
  const group = subject.group === undefined || subject.group === "" ? {} : { group: subject.group };
  return { name: subject.name, ...group, kind: subject.resource, ...rest };
}

/** 404: there is no such object. */
export function notFound(subject: ErrorSubject): ApiError {
  return new ApiError("NotFound", `${qualified(subject)} "${subject.name}" not found`, { details: detailsOf(subject) });
}

/** 409: an object of that name is there already. */
export function alreadyExists(subject: ErrorSubject): ApiError {
  const message = `${qualified(subject)} "${subject.name}" already exists`;
  return new ApiError("AlreadyExists", message, { details: detailsOf(subject) });
}

/** 409: the write was made against an older state. */
export function conflict(subject: ErrorSubject, why: string): ApiError {
  const message = `Operation cannot be fulfilled on ${qualified(subject)} "${subject.name}": ${why}`;
  return new ApiError("Conflict", message, { details: detailsOf(subject) });
}

/** 409: the resourceVersion sent is not the current one; the text is the one clients know. */
export function modified(subject: ErrorSubject): ApiError {
  return conflict(
    subject,
    "the object has been modified; please apply your changes to the latest version and try again",
  );
}

/** 403: the user may not do that. */
export function forbidden(subject: ErrorSubject, why: string): ApiError {
  const named = subject.name === "" ? "" : ` "${subject.name}"`;
  const message = `${qualified(subject)}${named} is forbidden: ${why}`;
  return new ApiError("Forbidden", message, { details: detailsOf(subject) });
}

/** 422: the object breaks its schema or a rule. `kind` is the kind, not the plural, as in Kubernetes. */
export function invalid(subject: { group?: string; kind: string; name: string }, causes: ErrorCause[]): ApiError {
  const named = { resource: subject.kind, name: subject.name, ...(subject.group ? { group: subject.group } : {}) };
  const texts = causes.map((cause) => (cause.field === undefined ? cause.message : `${cause.field}: ${cause.message}`));
  const joined = texts.length === 1 ? (texts[0] ?? "") : `[${texts.join(", ")}]`;
  const message = `${qualified(named)} "${subject.name}" is invalid: ${joined}`;
  return new ApiError("Invalid", message, { details: detailsOf(named, { causes }) });
}

/** 400: the request itself makes no sense. */
export function badRequest(message: string, options: ApiErrorOptions = {}): ApiError {
  return new ApiError("BadRequest", message, options);
}

/** 401: the request carries no credentials that were accepted. */
export function unauthorized(message = "Unauthorized"): ApiError {
  return new ApiError("Unauthorized", message);
}

/** 405: the resource does not have that verb. */
export function methodNotAllowed(verb: string, subject: Omit<ErrorSubject, "name">): ApiError {
  const message = `${verb} is not supported on resources of kind "${qualified({ ...subject, name: "" })}"`;
  return new ApiError("MethodNotAllowed", message, { details: detailsOf({ ...subject, name: "" }) });
}

/** 406: the server cannot answer in any of the accepted types. */
export function notAcceptable(message: string): ApiError {
  return new ApiError("NotAcceptable", message);
}

/** 415: the server cannot read a body of that type. */
export function unsupportedMediaType(message: string): ApiError {
  return new ApiError("UnsupportedMediaType", message);
}

/** 410: the resource version or continue token is older than what is kept; list again. */
export function expired(message: string): ApiError {
  return new ApiError("Expired", message);
}

/** 413: the body is larger than the limit. */
export function tooLarge(message: string): ApiError {
  return new ApiError("RequestEntityTooLarge", message);
}

/** 429: try again later. */
export function tooManyRequests(message: string, retryAfterSeconds: number): ApiError {
  return new ApiError("TooManyRequests", message, { details: { retryAfterSeconds } });
}

/** 503: the server, or what it needs, is not there at the moment. */
export function serviceUnavailable(message: string, retryAfterSeconds?: number): ApiError {
  return new ApiError(
    "ServiceUnavailable",
    message,
    retryAfterSeconds === undefined ? {} : { details: { retryAfterSeconds } },
  );
}

/** 500: a failure that is ours. */
export function internalError(message: string, cause?: unknown): ApiError {
  return new ApiError("InternalError", `Internal error occurred: ${message}`, cause === undefined ? {} : { cause });
}

/** Whether `error` is an ApiError with that reason. */
export function isReasonOf(error: unknown, reason: Reason): error is ApiError {
  return error instanceof ApiError && error.reason === reason;
}

/** For `.catch(ignore("NotFound"))`: swallows that one reason and rethrows everything else. */
export function ignore(...reasons: readonly Reason[]): (error: unknown) => undefined {
  return (error) => {
    if (error instanceof ApiError && reasons.includes(error.reason)) return undefined;
    throw error;
  };
}
