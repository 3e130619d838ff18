import type { IncomingMessage } from "node:http";
import http2, {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type Http2ServerResponse,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import type { Writable } from "node:stream";
import { linkCookie } from "../access/signed-link.ts";
import type { Target } from "../addressing/target.ts";
import type { RoutingError } from "../routing-error.ts";
import { type Dialer, type Upstream, upstreamKey, upstreamOf } from "./dial.ts";
import { asRoutingError, asUnsentError } from "./forward-http.ts";
import { isForRouter, isHopByHop, unsentHeader, withoutCookie } from "./headers.ts";
import { http2RequestOf } from "./http2-face.ts";
import type { RetryPolicy } from "./retry.ts";

/** The stream of a request that speaks gRPC proper, which needs HTTP/2 and trailers all the way; gRPC-Web and Connect are plain HTTP. */
export function grpcStreamOf(request: IncomingMessage): ServerHttp2Stream | undefined {
  const type = request.headers["content-type"] ?? "";
  return /^application\/grpc(?:[+;]|$)/.test(type) ? http2RequestOf(request)?.stream : undefined;
}

/** gRPC status codes of the router's own refusals. */
const grpcStatusOf: Readonly<Record<number, number>> = {
  400: 3,
  401: 16,
  403: 7,
  404: 5,
  409: 9,
  410: 5,
  413: 8,
  429: 8,
  502: 14,
  503: 14,
  504: 4,
};

/** Answers a gRPC call with a refusal: HTTP 200, and the status where gRPC clients look for it. */
export function refuseGrpc(stream: ServerHttp2Stream, error: RoutingError): void {
  if (stream.headersSent || stream.destroyed) return;
  const status = grpcStatusOf[error.status] ?? 13;
  stream.respond(
    {
      ":status": 200,
      "content-type": "application/grpc",
      "grpc-status": String(status),
      "grpc-message": encodeURIComponent(error.message),
    },
    { endStream: true },
  );
}

/** Carries gRPC calls over cleartext HTTP/2, many on one connection per sandbox port. */
export class GrpcForwarder {
  readonly #dialer: Dialer;
  readonly #retry: RetryPolicy;
  /** One session per `upstreamKey`, made on first use and forgotten when it ends. */
  readonly #sessions = new Map<string, Promise<ClientHttp2Session>>();

  constructor(dialer: Dialer, retry: RetryPolicy) {
    this.#dialer = dialer;
    this.#retry = retry;
  }

  /** Resolves when the call has ended; rejects with a RoutingError while nothing was answered. */
  async forward(
    stream: ServerHttp2Stream,
    { headers, response }: { readonly headers: IncomingHttpHeaders; readonly response: Http2ServerResponse },
    to: { readonly target: Target; readonly address: string; currentAddress(): string },
  ): Promise<void> {
    const { namespace, name } = to.target;
    const session = await this.#retry
      .run(
        () => this.#session(upstreamOf(to.currentAddress(), to.target)),
        () => stream.destroyed,
        namespace,
      )
      .catch((error: unknown) => {
        throw asUnsentError(error, name);
      });
    try {
      await relay(stream, response, session.request(upstreamHeaders(headers, to)));
    } catch (error) {
      throw asRoutingError(error, to.target.name);
    }
  }

  /** Sends no more calls over the sessions to an address; those under way go on as long as their connections do. */
  forget(address: string): void {
    for (const [key, opening] of this.#sessions) {
      if (!key.startsWith(`${address}:`)) continue;
      this.#sessions.delete(key);
      opening.then(
        (session) => session.close(),
        () => undefined,
      );
    }
  }

  /** Ends all sessions once their calls have ended. */
  async close(): Promise<void> {
    const sessions = await Promise.allSettled(this.#sessions.values());
    for (const session of sessions) if (session.status === "fulfilled") session.value.close();
  }

  #session(upstream: Upstream): Promise<ClientHttp2Session> {
    const key = upstreamKey(upstream);
    const known = this.#sessions.get(key);
    if (known !== undefined) return known;
    const opened = this.#open(upstream, () => {
      if (this.#sessions.get(key) === opened) this.#sessions.delete(key);
    });
    this.#sessions.set(key, opened);
    opened.catch(() => this.#sessions.delete(key));
    return opened;
  }

  async #open(upstream: Upstream, onEnd: () => void): Promise<ClientHttp2Session> {
    const { address, port } = upstream;
    const socket = await this.#dialer.dial(upstream);
    const session = http2.connect(`http://${address}:${port}`, { createConnection: () => socket });
    // Without a listener a broken connection would end the process; the calls on it report it themselves.
    session.on("error", () => undefined);
    session.once("close", onEnd);
    session.once("goaway", onEnd);
    session.unref();
    return session;
  }
}

function upstreamHeaders(
  headers: IncomingHttpHeaders,
  { target, address }: { target: Target; address: string },
): OutgoingHttpHeaders {
  const out: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(headers)) {
    if (name !== "cookie" && !isHopByHop(name) && !isForRouter(name)) out[name] = value;
  }
  const cookies = withoutCookie(headers.cookie ?? "", linkCookie);
  return {
    ...out,
    ...(cookies !== "" && { cookie: cookies }),
    ":method": "POST",
    ":path": target.path,
    ":authority": `${address}:${target.port}`,
    ":scheme": "http",
    te: "trailers",
  };
}

/** The answer goes through the compatibility object, which owns the stream's trailers. */
function relay(stream: ServerHttp2Stream, response: Http2ServerResponse, upstream: ClientHttp2Stream): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = (): void => upstream.close(http2.constants.NGHTTP2_CANCEL);
    const fail = (error: unknown): void => {
      cancel();
      if (!response.headersSent) return reject(error as Error);
      stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
      resolve();
    };
    upstream.once("error", fail);
    // A connection that is cut ends its calls as if they were complete.
    upstream.once("aborted", () => {
      if (!stream.destroyed) fail(new Error("the answer to a call broke off"));
    });
    upstream.once("response", (headers) => {
      if (stream.destroyed) return;
      const { ":status": status = 200, ...rest } = headers;
      response.writeHead(status, withoutConnectionHeaders(rest));
      upstream.pipe(response as Writable);
    });
    upstream.once("trailers", (headers: IncomingHttpHeaders) => {
      response.addTrailers({ ...headers });
    });
    upstream.once("close", () => {
      if (!response.headersSent && !stream.destroyed) fail(new Error("the sandbox closed the call without an answer"));
    });
    stream.once("close", () => {
      cancel();
      resolve();
    });
    stream.once("error", cancel);
    stream.pipe(upstream);
  });
}

function withoutConnectionHeaders(headers: IncomingHttpHeaders): OutgoingHttpHeaders {
  const { connection: _connection, "transfer-encoding": _transferEncoding, [unsentHeader]: _unsent, ...rest } = headers;
  return rest;
}
