import type { Duplex } from "node:stream";
import { ApiError } from "@agent-sandbox/api";
import { wireError } from "./pipeline/pipeline.ts";
import { type ApiResponse, isWholeBody, type RequestHandler } from "./request/api-request.ts";
import type { UserInfo } from "./request/user-info.ts";

/** A request as the client package makes it. */
export interface TransportRequest {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string;
  readonly signal?: AbortSignal;
}

/** Carries requests into this process's API server under one identity; fits the client package's `Transport`. */
export class InProcessTransport {
  readonly #server: RequestHandler;
  readonly #user: UserInfo;
  readonly #closed = new AbortController();

  constructor(server: RequestHandler, user: UserInfo) {
    this.#server = server;
    this.#user = user;
  }

  async request(
    request: TransportRequest,
  ): Promise<{ status: number; headers: Readonly<Record<string, string>>; body: AsyncIterable<Uint8Array> }> {
    request.signal?.throwIfAborted();
    const { status, headers, body } = await this.#server.handle(this.#asMine(request));
    return { status, headers, body: streamOf(body, request.signal) };
  }

  async upgrade(
    request: TransportRequest & { protocol: string },
  ): Promise<{ headers: Readonly<Record<string, string>>; stream: Duplex }> {
    const headers = { ...request.headers, connection: "Upgrade", upgrade: request.protocol };
    try {
      const stream = await this.#server.openUpgrade(this.#asMine({ ...request, headers }));
      return { headers: await readUpgradeAnswer(stream), stream };
    } catch (error) {
      throw wireError(error);
    }
  }

  async close(): Promise<void> {
    this.#closed.abort(new Error("the transport was closed"));
  }

  #asMine({ method, path, headers, body, signal }: TransportRequest) {
    // A write is answered whatever becomes of its caller, and joining signals costs as much as a small write.
    const mayLast = method === "GET" || headers?.["upgrade"] !== undefined;
    const mine = this.#closed.signal;
    const ended = signal !== undefined && mayLast ? AbortSignal.any([signal, mine]) : (signal ?? mine);
    return {
      method,
      path,
      user: this.#user,
      signal: ended,
      ...(headers === undefined ? {} : { headers }),
      ...(body === undefined ? {} : { body }),
    };
  }
}

async function* streamOf(body: ApiResponse["body"], signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
  if (isWholeBody(body)) {
    yield* body;
    return;
  }
  yield* body;
  // A watch ends without an error when it is aborted; the reader gets the reason, as over a socket.
  signal?.throwIfAborted();
}

/** Bytes of an answer's head, at most. */
const headMaxBytes = 64 * 1024;

/** Reads the node's answer off a fresh connection; what follows it stays in the stream. */
function readUpgradeAnswer(stream: Duplex): Promise<Record<string, string>> {
  return new Promise((resolve, reject) => {
    let seen = Buffer.alloc(0);
    const onData = (chunk: Buffer): void => {
      seen = Buffer.concat([seen, chunk]);
      const end = seen.indexOf("\r\n\r\n");
      if (end < 0 && seen.byteLength < headMaxBytes) return;
      stream.off("data", onData).pause();
      const [statusLine = "", ...lines] = seen.subarray(0, Math.max(end, 0)).toString("latin1").split("\r\n");
      const status = Number(statusLine.split(" ")[1]);
      if (end < 0 || status !== 101) {
        stream.destroy();
        reject(
          ApiError.fromStatus({ message: `the node answered ${statusLine}` }, Number.isNaN(status) ? 502 : status),
        );
        return;
      }
      if (seen.byteLength > end + 4) stream.unshift(seen.subarray(end + 4));
      resolve(
        Object.fromEntries(
          lines.map((line) => [
            line.slice(0, line.indexOf(":")).toLowerCase(),
            line.slice(line.indexOf(":") + 1).trim(),
          ]),
        ),
      );
    };
    stream.on("data", onData);
    stream.once("error", reject);
    stream.once("close", () => reject(new ApiError("ServiceUnavailable", "the node closed the connection")));
  });
}
