import { SandboxError } from "../errors/sandbox-error.ts";
import type { DataPlane, PlaneRequest, PlaneResponse } from "./data-plane.ts";
import { type RouterTarget, routerHeaders } from "./router-plane.ts";

/** How a browser reaches a router. */
export interface FetchPlaneOptions {
  /** The router's address, without a path. */
  readonly routerUrl: string;
  readonly target: RouterTarget;
  /** Headers that authorise a request; asked for each, so that tokens may change. */
  readonly authorize?: () => Promise<Readonly<Record<string, string>>>;
  readonly fetch?: typeof fetch;
}

/** A plane over the platform's `fetch`: for browsers, and for every runtime that is not Node. */
export class FetchPlane implements DataPlane {
  readonly #options: FetchPlaneOptions;

  constructor(options: FetchPlaneOptions) {
    this.#options = options;
  }

  async request({ method, port, path, headers, body, signal }: PlaneRequest): Promise<PlaneResponse> {
    const { routerUrl, target, authorize, fetch: send = fetch } = this.#options;
    const own = { ...headers, ...routerHeaders(target, port), ...(await authorize?.()) };
    const sent = await bodyFor(body);
    try {
      const response = await send(new URL(path, routerUrl), {
        method,
        headers: own,
        redirect: "manual",
        ...(sent !== undefined && { body: sent }),
        ...(signal !== undefined && { signal }),
      });
      return {
        status: response.status,
        headers: Object.fromEntries(response.headers),
        body: chunksOf(response, signal),
      };
    } catch (cause) {
      if (signal?.aborted === true) throw signal.reason;
      throw new SandboxError("connection-lost", `${method} ${path.split("?")[0]}: no answer`, { cause });
    }
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** Browsers cannot stream a request over HTTP/1.1, so a stream is collected first. */
async function bodyFor(body: PlaneRequest["body"]): Promise<BodyInit | undefined> {
  if (body === undefined || typeof body === "string") return body;
  if (body instanceof Uint8Array) return new Blob([body as Uint8Array<ArrayBuffer>]);
  const chunks: BlobPart[] = [];
  for await (const chunk of body) chunks.push(chunk as Uint8Array<ArrayBuffer>);
  return new Blob(chunks);
}

async function* chunksOf(response: Response, signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (cause) {
    if (signal?.aborted === true) throw signal.reason;
    throw new SandboxError("connection-lost", "the connection broke inside the answer", { cause });
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
