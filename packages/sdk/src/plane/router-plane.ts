import { codeOfStatus, SandboxError } from "../errors/sandbox-error.ts";
import { markUnsent } from "../errors/unsent.ts";
import { pauseFor } from "../timing/pause.ts";
import { type DataPlane, daemonPort, type PlaneRequest, type PlaneResponse, readText } from "./data-plane.ts";

/** The sandbox that a router is asked for. */
export interface RouterTarget {
  readonly namespace: string;
  readonly name: string;
  /** Given, another sandbox of the same name is not reached. */
  readonly uid?: string;
}

/** Headers that name a sandbox's port to the router. */
export function routerHeaders({ namespace, name, uid }: RouterTarget, port: number): Record<string, string> {
  return {
    "x-sandbox-id": name,
    "x-sandbox-namespace": namespace,
    "x-sandbox-port": String(port),
    ...(uid !== undefined && { "x-sandbox-uid": uid }),
  };
}

// The router learns of a new sandbox through its own watch, some milliseconds after the API said it was there.
const unknownRetriesMax = 6;
const unknownPauseMs = 40;
// A sandbox is Ready a moment before its daemon listens; a request that changes nothing twice is sent again meanwhile.
const refusedRetriesMax = 8;
const refusedPauseMs = 30;
/** With the pauses that the router asks for, longer than any start that is worth waiting for; callers' signals end it sooner. */
const startingRetriesMax = 60;

/**
 * Reads what a router says for itself. A refusal proves that the sandbox never saw the request, so those that time will
 * mend are tried again here. Answers of the user's own programs on other ports pass untouched.
 */
export class RouterPlane implements DataPlane {
  readonly #inner: DataPlane;

  constructor(inner: DataPlane) {
    this.#inner = inner;
  }

  async request(request: PlaneRequest): Promise<PlaneResponse> {
    for (let attempt = 1; ; attempt += 1) {
      const response = await this.#inner.request(request);
      if (request.port !== daemonPort || !mayBeRefusal(response)) return response;
      const text = await readText(response.body);
      const detail = tryDetail(text);
      if (detail === undefined) return { ...response, body: once(text) };
      const pauseMs = retryPause(response, attempt, request);
      if (pauseMs === undefined) throw refusal(response, detail);
      await pauseFor(pauseMs, request.signal);
    }
  }

  close(): Promise<void> {
    return this.#inner.close();
  }
}

const refusalStatuses = new Set([400, 401, 403, 404, 409, 410, 413, 429, 500, 502, 503, 504]);

function mayBeRefusal({ status, headers }: PlaneResponse): boolean {
  return refusalStatuses.has(status) && (headers["content-type"] ?? "").startsWith("application/json");
}

/** The router's words; sandboxd's own errors have a `code` instead. */
function tryDetail(text: string): string | undefined {
  try {
    const { detail } = JSON.parse(text) as { detail?: unknown };
    return typeof detail === "string" ? detail : undefined;
  } catch {
    return undefined;
  }
}

function isReplayable({ body }: PlaneRequest): boolean {
  return body === undefined || typeof body === "string" || body instanceof Uint8Array;
}

function retryPause({ status, headers }: PlaneResponse, attempt: number, request: PlaneRequest): number | undefined {
  if (!isReplayable(request)) return undefined;
  if (status === 404) return attempt <= unknownRetriesMax ? unknownPauseMs * attempt : undefined;
  // The router could not connect, or lost the connection: only what may safely happen twice is repeated.
  if (status === 502 && request.method !== "POST")
    return attempt <= refusedRetriesMax ? refusedPauseMs * attempt : undefined;
  const seconds = Number(headers["retry-after"]);
  const isTold = (status === 503 || status === 429) && Number.isFinite(seconds) && headers["retry-after"] !== undefined;
  return isTold && attempt <= startingRetriesMax ? Math.min(Math.max(seconds, 0.1), 10) * 1000 : undefined;
}

function refusal(response: PlaneResponse, detail: string): SandboxError {
  const error = refusalError(response, detail);
  // Of these the router passes nothing on, and of others only where it says so.
  const isUnsent =
    response.status === 404 || response.status === 503 || response.headers["x-sandbox-unsent"] === "true";
  return isUnsent ? markUnsent(error) : error;
}

function refusalError({ status, headers }: PlaneResponse, detail: string): SandboxError {
  const requestId = headers["x-request-id"];
  if (status === 409) return new SandboxError("sandbox-held", detail, { requestId });
  if (status === 503) return new SandboxError("sandbox-not-ready", detail, { requestId });
  return new SandboxError(codeOfStatus(status), detail, { requestId });
}

async function* once(text: string): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode(text);
}
