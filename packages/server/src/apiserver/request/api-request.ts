import type { Duplex } from "node:stream";
import type { UserInfo } from "./user-info.ts";

/** One request to the API, already authenticated. */
export interface ApiRequest {
  readonly method: string;
  /** Path with query. */
  readonly path: string;
  /** Names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string;
  readonly signal?: AbortSignal;
  readonly user: UserInfo;
  /** For the audit log. */
  readonly sourceIp?: string;
}

/** The answer: bytes that are there, in one or several parts, or a stream. */
export interface ApiResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[] | AsyncIterable<Uint8Array>;
}

/** What answers requests: the API server, as its listener and its in-process transport see it. */
export interface RequestHandler {
  /** Answers one request; never rejects. */
  handle(request: ApiRequest): Promise<ApiResponse>;
  /** Opens a stream to a node, whose answer is on the connection; throws ApiError. */
  openUpgrade(request: ApiRequest): Promise<Duplex>;
}

/** Tells an answer whose bytes are all there from a stream. */
export function isWholeBody(body: ApiResponse["body"]): body is readonly Uint8Array[] {
  return Array.isArray(body);
}
