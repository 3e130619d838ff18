import { ApiError, type JsonValue } from "@agent-sandbox/api";

const typeTexts = {
  FieldValueNotFound: "Not found",
  FieldValueRequired: "Required value",
  FieldValueDuplicate: "Duplicate value",
  FieldValueInvalid: "Invalid value",
  FieldValueTypeInvalid: "Invalid value",
  FieldValueNotSupported: "Unsupported value",
  FieldValueForbidden: "Forbidden",
  FieldValueTooLong: "Too long",
  FieldValueTooMany: "Too many",
  FieldValueTooFew: "Too few",
  InternalError: "Internal error",
} as const;

/** The machine-readable kind of a field error; equals the reason of a Status cause. */
export type FieldErrorType = keyof typeof typeTexts;

/** What is wrong with one field, in Kubernetes' words. */
export interface FieldError {
  readonly type: FieldErrorType;
  readonly field: string;
  /** The text after the field's path. */
  readonly body: string;
}

/** A value is missing. */
export function required(field: string, detail = ""): FieldError {
  return { type: "FieldValueRequired", field, body: join("Required value", detail) };
}

/** A value is malformed. */
export function invalid(field: string, value: JsonValue | undefined, detail: string): FieldError {
  return withValue("FieldValueInvalid", { field, value, detail });
}

/** A value has another type than the schema says; `actual` is the name of its type. */
export function typeInvalid(field: string, actual: string, detail: string): FieldError {
  return withValue("FieldValueTypeInvalid", { field, value: actual, detail });
}

/** A value is used twice where it must be unique. */
export function duplicate(field: string, value: JsonValue | undefined): FieldError {
  return withValue("FieldValueDuplicate", { field, value, detail: "" });
}

/** A value is not among the allowed ones. */
export function notSupported(field: string, value: JsonValue | undefined, allowed: readonly string[]): FieldError {
  const detail = allowed.length === 0 ? "" : `supported values: ${allowed.map((v) => JSON.stringify(v)).join(", ")}`;
  return withValue("FieldValueNotSupported", { field, value, detail });
}

/** A value is fine as such but not permitted here. */
export function forbiddenField(field: string, detail: string): FieldError {
  return { type: "FieldValueForbidden", field, body: join("Forbidden", detail) };
}

/** A string is longer than allowed. */
export function tooLong(field: string, maxBytes: number): FieldError {
  const unit = maxBytes === 1 ? "byte" : "bytes";
  return { type: "FieldValueTooLong", field, body: `Too long: may not be more than ${maxBytes} ${unit}` };
}

/** A list or map has more entries than allowed. */
export function tooMany(field: string, actual: number, max: number): FieldError {
  const unit = max === 1 ? "item" : "items";
  return withValue("FieldValueTooMany", { field, value: actual, detail: `must have at most ${max} ${unit}` });
}

/** A named thing does not exist. */
export function notFoundField(field: string, value: JsonValue): FieldError {
  return withValue("FieldValueNotFound", { field, value, detail: "" });
}

/** The whole sentence, `spec.x: Required value`. */
function fieldErrorText(error: FieldError): string {
  return `${error.field}: ${error.body}`;
}

/** The 422 that carries field errors, with one cause each and Kubernetes' sentence. */
export function invalidObject(
  subject: { group: string; kind: string; name: string },
  errors: readonly FieldError[],
): ApiError {
  const { group, kind, name } = subject;
  const texts = [...new Set(errors.map(fieldErrorText))];
  const list = texts.length === 1 ? texts[0] : `[${texts.join(", ")}]`;
  const title = group === "" ? kind : `${kind}.${group}`;
  const causes = errors.map((error) => ({ reason: error.type, message: error.body, field: error.field }));
  return new ApiError("Invalid", `${title} ${JSON.stringify(name)} is invalid: ${list ?? ""}`, {
    details: { ...(name === "" ? {} : { name }), ...(group === "" ? {} : { group }), kind, causes },
  });
}

/** The 422 for parameters of a request, in Kubernetes' words. */
export function invalidOptions(kind: string, errors: readonly FieldError[]): ApiError {
  return invalidObject({ group: "meta.k8s.io", kind, name: "" }, errors);
}

function withValue(
  type: FieldErrorType,
  { field, value, detail }: { field: string; value: JsonValue | undefined; detail: string },
): FieldError {
  return { type, field, body: join(`${typeTexts[type]}: ${JSON.stringify(value ?? null)}`, detail) };
}

function join(text: string, detail: string): string {
  return detail === "" ? text : `${text}: ${detail}`;
}
