import type Http from "node:http";
import type { Agent, ClientRequest, IncomingMessage, OutgoingHttpHeaders } from "node:http";
import type Https from "node:https";
import { type Duplex, Readable } from "node:stream";
import type { ConnectionOptions } from "node:tls";
import { SandboxError } from "../errors/sandbox-error.ts";
import { markUnsent } from "../errors/unsent.ts";
import type { DataPlane, PlaneRequest, PlaneResponse } from "./data-plane.ts";

/** How an HTTP plane reaches its sandbox. */
export interface HttpPlaneOptions {
  /** Where to connect for a port of the sandbox. */
  readonly locate: (port: number) => Promise<{ readonly host: string; readonly port: number }>;
  /** Present: speak TLS. */
  readonly tls?: ConnectionOptions;
  /** Headers that address and authorise a request. */
  readonly headers?: (port: number) => Promise<Readonly<Record<string, string>>>;
  /** Opens a connection in place of TCP. */
  readonly connect?: (port: number) => Promise<Duplex>;
}

/** Idle connections kept for the next request. Busy ones are as many as callers have requests under way. */
const freeSocketsMax = 8;

/** HTTP/1.1 with kept connections, over TCP, TLS or any stream that carries bytes. */
export class HttpPlane implements DataPlane {
  readonly #options: HttpPlaneOptions;
  #agent: Agent | undefined;
  #isClosed = false;

  constructor(options: HttpPlaneOptions) {
    this.#options = options;
  }

  async request(request: PlaneRequest): Promise<PlaneResponse> {
    if (this.#isClosed) throw new SandboxError("closed", "the connection to the sandbox was closed");
    request.signal?.throwIfAborted();
    const { locate, headers } = this.#options;
    const [address, own] = await Promise.all([locate(request.port), headers?.(request.port)]);
    request.signal?.throwIfAborted();
    return this.#send(request, address, { ...request.headers, ...own });
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.#agent?.destroy();
    return Promise.resolve();
  }

  #send(
    request: PlaneRequest,
    address: { host: string; port: number },
    headers: OutgoingHttpHeaders,
  ): Promise<PlaneResponse> {
    const { method, path, body, signal } = request;
    const { promise, resolve, reject } = Promise.withResolvers<PlaneResponse>();
    const carrier = this.#options.tls === undefined ? http() : https();
    const length =
      typeof body === "string" || body instanceof Uint8Array ? { "content-length": Buffer.byteLength(body) } : {};
    const sent = carrier.request({
      ...address,
      method,
      path,
      headers: { ...headers, ...length },
      agent: (this.#agent ??= this.#newAgent()),
      ...(signal !== undefined && { signal }),
    });
    let isAnswered = false;
    sent.once("response", (message) => {
      isAnswered = true;
      resolve({ status: message.statusCode ?? 0, headers: headersOf(message), body: bodyOf(message, signal) });
    });
    sent.on("error", (cause: NodeJS.ErrnoException) => {
      if (!isAnswered) reject(failureOf(sent, cause, signal));
    });
    writeBody(sent, body, reject);
    return promise;
  }

  #newAgent(): Agent {
    const { tls, connect } = this.#options;
    const options = { keepAlive: true, maxFreeSockets: freeSocketsMax, noDelay: true };
    const agent = tls === undefined ? new (http().Agent)(options) : new (https().Agent)({ ...options, ...tls });
    if (connect !== undefined) {
      agent.createConnection = (target, callback) => {
        connect(Number(target.port)).then(
          (stream) => callback?.(null, stream),
          (error: Error) => callback?.(error, undefined as never),
        );
        return undefined;
      };
    }
    return agent;
  }
}

// Loaded on first use: importing the SDK must not cost what only its use needs.
const http = (): typeof Http => process.getBuiltinModule("node:http");
const https = (): typeof Https => process.getBuiltinModule("node:https");

function writeBody(sent: ClientRequest, body: PlaneRequest["body"], reject: (error: unknown) => void): void {
  if (body === undefined || typeof body === "string" || body instanceof Uint8Array) return void sent.end(body);
  const source = Readable.from(body, { objectMode: false });
  source.once("error", (error) => {
    // The source's own failure is the answer, not the broken request that follows from it.
    reject(error);
    sent.destroy(error);
  });
  sent.once("close", () => source.destroy());
  source.pipe(sent);
}

/** The body; a connection that breaks inside it, or a cancelled call, rejects the read. */
async function* bodyOf(message: IncomingMessage, signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of message) yield chunk as Buffer;
  } catch (cause) {
    if (signal?.aborted === true) throw signal.reason;
    throw new SandboxError("connection-lost", "the connection broke inside the answer", { cause });
  }
}

/** A connection that could not be made proves that nothing was sent; any other failure leaves it open. */
function failureOf(sent: ClientRequest, cause: NodeJS.ErrnoException, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true) return signal.reason;
  if (cause instanceof SandboxError) return cause;
  const message = `${sent.method} ${sent.path.split("?")[0]}: ${cause.message || cause.code}`;
  if (cause.syscall === "connect") return markUnsent(new SandboxError("unavailable", message, { cause }));
  return new SandboxError("connection-lost", message, { cause });
}

function headersOf({ headers }: IncomingMessage): Record<string, string> {
  const flat: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) flat[name] = Array.isArray(value) ? value.join(", ") : value;
  }
  return flat;
}
