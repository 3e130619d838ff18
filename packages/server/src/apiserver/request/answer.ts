import type { ApiError } from "@agent-sandbox/api";
import { stringify } from "yaml";
import type { ApiResponse } from "./api-request.ts";
import type { AnswerFormat } from "./media-type.ts";

/** A JSON (or YAML) answer from a value. */
export function answerValue(status: number, value: unknown, format?: AnswerFormat): ApiResponse {
  if (format?.encoding === "yaml") {
    return answerBytes(status, [Buffer.from(stringify(value))], { "content-type": "application/yaml" });
  }
  return answerBytes(status, [Buffer.from(JSON.stringify(value))]);
}

/** An answer from bytes that are JSON already. */
export function answerBytes(
  status: number,
  body: readonly Uint8Array[],
  headers: Readonly<Record<string, string>> = {},
): ApiResponse {
  return { status, headers: { "content-type": "application/json", ...headers }, body };
}

/** A plain-text answer, as health endpoints give. */
export function answerText(status: number, text: string): ApiResponse {
  return { status, headers: { "content-type": "text/plain; charset=utf-8" }, body: [Buffer.from(text)] };
}

/** The Status answer of a failed request. */
export function answerError(error: ApiError, format?: AnswerFormat): ApiResponse {
  const retryAfter = error.retryAfterSeconds;
  const headers = retryAfter === undefined ? {} : { "retry-after": String(retryAfter) };
  const { details, ...status } = error.toStatus();
  const { name, ...others } = details ?? {};
  // A collection has no name, and Kubernetes does not write an empty one.
  const shown = name === undefined || name === "" ? others : details;
  const body = details === undefined ? status : { ...status, details: shown };
  if (format?.encoding !== "yaml") return answerBytes(error.status, [Buffer.from(JSON.stringify(body))], headers);
  const text = Buffer.from(stringify(body, { sortMapEntries: true }));
  return answerBytes(error.status, [text], { ...headers, "content-type": "application/yaml" });
}

/** Adds `Warning: 299` headers; several are one header joined by commas, which clients split again. */
export function withWarnings(response: ApiResponse, warnings: readonly string[]): ApiResponse {
  if (warnings.length === 0) return response;
  const texts = [...new Set(warnings)].map((text) => `299 - ${JSON.stringify(printable(text))}`);
  return { ...response, headers: { ...response.headers, warning: texts.join(", ") } };
}

/** Header values are Latin-1 without control characters. */
function printable(text: string): string {
  return text.replace(/[^\u0020-\u007e]/g, "?");
}
