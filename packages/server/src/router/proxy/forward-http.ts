import type { ServerResponse } from "node:http";
import http, { type ClientRequest, type IncomingMessage } from "node:http";
import { RoutingError } from "../routing-error.ts";
import type { RoutedExchange } from "./exchange.ts";
import { forwardedHeaders, hasBody, returnedHeaders } from "./headers.ts";

/** How an exchange is carried. */
export interface ForwardOptions {
  readonly agent: http.Agent;
  readonly ownCookie: string;
  /** From the request being written to the first byte of the answer. The caller's own limit may be shorter. */
  readonly firstByteTimeoutMs: number;
  /** A request body above this is refused with 413; 0 means no limit. */
  readonly bodyBytesMax: number;
}

/** Carries one exchange over HTTP/1.1. Resolves when the answer is written; rejects with a RoutingError while nothing was answered. */
export function forwardHttp(exchange: RoutedExchange, options: ForwardOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    const { request, response, target, address, signal } = exchange;
    const upstream = http.request({
      agent: options.agent,
      host: address,
      port: target.port,
      method: request.method ?? "GET",
      path: target.path,
      headers: forwardedHeaders({
        rawHeaders: request.rawHeaders,
        upstreamHost: `${address}:${target.port}`,
        clientAddress: request.socket.remoteAddress ?? "",
        originalHost: request.headers.host ?? String(request.headers[":authority"] ?? ""),
        protocol: exchange.protocol,
        ownCookie: options.ownCookie,
        isUpgrade: false,
      }),
      setHost: false,
    });
    const timer = setTimeout(
      () => upstream.destroy(new RoutingError(504, `Timed out waiting for the backend sandbox: ${target.name}`)),
      firstByteLimit(exchange, options),
    );
    const onAbort = (): void => void upstream.destroy(signal.reason as Error);
    signal.addEventListener("abort", onAbort, { once: true });
    const done = (error?: unknown): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      if (error === undefined) resolve();
      else if (response.headersSent) {
        // The answer has begun: cutting the connection is the only way left to say that it is incomplete.
        response.destroy(error as Error);
        resolve();
      } else reject(asRoutingError(error, target.name));
    };
    upstream.once("error", done);
    upstream.once("response", (answer) => {
      clearTimeout(timer);
      returnAnswer(answer, response, done);
    });
    upstream.on("information", (info) => relayInformation(info, response));
    upstream.once("upgrade", (_answer, socket) => {
      socket.destroy();
      done(new RoutingError(502, "Backend attempted an upgrade that was not asked for."));
    });
    sendBody(request, upstream, options.bodyBytesMax);
  });
}

function firstByteLimit({ target }: RoutedExchange, { firstByteTimeoutMs }: ForwardOptions): number {
  return target.timeoutMs === undefined ? firstByteTimeoutMs : Math.min(target.timeoutMs, firstByteTimeoutMs);
}

/** The body is read only once the upstream connection takes it: a failed dial leaves it untouched. */
function sendBody(request: IncomingMessage, upstream: ClientRequest, bytesMax: number): void {
  if (!hasBody(request.headers) && request.httpVersionMajor < 2) return void upstream.end();
  if (bytesMax > 0) limitBody(request, upstream, bytesMax);
  request.pipe(upstream);
  request.once("error", (error) => upstream.destroy(error));
}

function limitBody(request: IncomingMessage, upstream: ClientRequest, bytesMax: number): void {
  let bytes = 0;
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > bytesMax) upstream.destroy(new RoutingError(413, `request body is larger than ${bytesMax} bytes`));
  });
}

function returnAnswer(answer: IncomingMessage, response: ServerResponse, done: (error?: unknown) => void): void {
  const headers = returnedHeaders(answer.rawHeaders);
  response.writeHead(
    answer.statusCode ?? 502,
    ...((response.req.httpVersionMajor < 2 ? [answer.statusMessage ?? "", headers] : [headers]) as [string, string[]]),
  );
  // An event stream may have nothing to say for minutes, so its headers go out at once; a body of known length follows
  // immediately, and then head and body share one packet.
  if (answer.headers["content-length"] === undefined) response.flushHeaders();
  answer.once("error", done);
  answer.once("aborted", () => done(new Error("the sandbox closed the connection in the middle of its answer")));
  answer.once("end", () => {
    if (answer.rawTrailers.length > 0) response.addTrailers(pairs(answer.rawTrailers));
  });
  response.once("finish", () => done());
  response.once("close", () => {
    if (!response.writableFinished) {
      answer.destroy();
      done();
    }
  });
  answer.pipe(response);
}

function relayInformation(
  info: { statusCode: number; headers: http.IncomingHttpHeaders },
  response: ServerResponse,
): void {
  if (info.statusCode === 100) response.writeContinue();
  else if (info.statusCode === 102) response.writeProcessing();
  else if (info.statusCode === 103 && info.headers["link"] !== undefined)
    response.writeEarlyHints({ link: info.headers["link"] });
}

function pairs(flat: readonly string[]): [string, string][] {
  return flat.flatMap((name, index) => (index % 2 === 0 ? [[name, flat[index + 1] ?? ""] as [string, string]] : []));
}

/** Every upstream failure becomes an answer; the caller's own going away keeps its reason. */
export function asRoutingError(error: unknown, sandbox: string): unknown {
  if (error instanceof RoutingError) return error;
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ETIMEDOUT")
    return new RoutingError(504, `Timed out waiting for the backend sandbox: ${sandbox}`, { cause: error });
  return new RoutingError(502, `Could not connect to the backend sandbox: ${sandbox}`, { cause: error });
}
