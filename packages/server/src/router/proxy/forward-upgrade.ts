import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { holdBack, StreamWriter } from "@agent-sandbox/kube";
import type { Target } from "../addressing/target.ts";
import { RoutingError } from "../routing-error.ts";
import { type Dialer, upstreamOf } from "./dial.ts";
import { asRoutingError, asUnsentError } from "./forward-http.ts";
import { formatHost, forwardedHeaders } from "./headers.ts";
import { type ResponseHead, ResponseParser } from "./response-parser.ts";
import type { RetryPolicy } from "./retry.ts";
import { type EndSession, tunnel } from "./tunnel.ts";

/** An upgrade on its way to a sandbox. */
export interface UpgradeExchange {
  readonly request: IncomingMessage;
  /** The caller's connection, and what it sent right behind its request. */
  readonly socket: Duplex;
  readonly head: Buffer;
  readonly target: Target;
  readonly address: string;
  /** Where the sandbox is at this moment. */
  currentAddress(): string;
  readonly protocol: "http" | "https";
  /** When the right to the session ends; absent: not by itself. */
  readonly endsInMs?: number;
}

/** How upgrades are carried. */
export interface UpgradeOptions {
  readonly dialer: Dialer;
  readonly retry: RetryPolicy;
  readonly ownCookie: string;
  readonly handshakeTimeoutMs: number;
  /** A connection without a byte in either direction for this long is closed; 0 means never. */
  readonly idleTimeoutMs: number;
  /** The longest a session lasts; 0 means for ever. */
  readonly lifetimeMs: number;
  /** Sessions that are open. Bound: the limits on open exchanges. */
  readonly sessions: Set<EndSession>;
}

/** The longest answer to a handshake: more than any server sends, small enough to hold in memory for every connection. */
const answerBytesMax = 64 * 1024;

/**
 * Carries a WebSocket or any other upgrade: the handshake as HTTP, then raw bytes both ways with half-close. Resolves with
 * the status that was answered when both directions have ended.
 */
export async function forwardUpgrade(exchange: UpgradeExchange, options: UpgradeOptions): Promise<number> {
  const { request, socket, head, target } = exchange;
  const dial = (): Promise<Socket> => options.dialer.dial(upstreamOf(exchange.currentAddress(), target));
  const upstream = await options.retry
    .run(dial, () => socket.destroyed, target.namespace)
    .catch((error: unknown) => {
      throw asUnsentError(error, target.name);
    });
  try {
    upstream.write(handshakeOf(exchange, options.ownCookie));
    if (head.length > 0) upstream.write(head);
    const answer = await readAnswer(upstream, options.handshakeTimeoutMs, target.name);
    const status = statusOf(answer.head);
    if (status !== 101) {
      await relayRefusal(socket, upstream, Buffer.concat([answer.head, answer.rest]));
      return status;
    }
    assertSameProtocol(request, answer.head);
    socket.write(answer.head);
    if (answer.rest.length > 0) socket.write(answer.rest);
    const isWebsocket = request.headers.upgrade?.trim().toLowerCase() === "websocket";
    await tunnel({ client: socket, upstream }, { ...options, isWebsocket, endsInMs: exchange.endsInMs });
    return status;
  } finally {
    upstream.destroy();
  }
}

function handshakeOf({ request, target, address, protocol }: UpgradeExchange, ownCookie: string): string {
  const headers = forwardedHeaders({
    rawHeaders: request.rawHeaders,
    upstreamHost: formatHost(address, target.port),
    clientAddress: request.socket.remoteAddress ?? "",
    originalHost: request.headers.host ?? "",
    protocol,
    ownCookie,
    isUpgrade: true,
  });
  const lines = [`${request.method} ${target.path} HTTP/1.1`];
  for (let index = 0; index + 1 < headers.length; index += 2) lines.push(`${headers[index]}: ${headers[index + 1]}`);
  return `${lines.join("\r\n")}\r\n\r\n`;
}

function readAnswer(upstream: Duplex, timeoutMs: number, sandbox: string): Promise<{ head: Buffer; rest: Buffer }> {
  return new Promise((resolve, reject) => {
    let bytes = Buffer.alloc(0);
    const settle = (act: () => void): void => {
      clearTimeout(timer);
      upstream.removeListener("data", onData);
      upstream.removeListener("end", onEnd);
      upstream.removeListener("error", onError);
      upstream.pause();
      act();
    };
    const onData = (chunk: Buffer): void => {
      bytes = Buffer.concat([bytes, chunk]);
      const end = bytes.indexOf("\r\n\r\n");
      if (end !== -1) settle(() => resolve({ head: bytes.subarray(0, end + 4), rest: bytes.subarray(end + 4) }));
      else if (bytes.length > answerBytesMax)
        settle(() => reject(new RoutingError(502, "the sandbox's handshake answer is too long")));
    };
    const onEnd = (): void =>
      settle(() => reject(new RoutingError(502, `Could not connect to the backend sandbox: ${sandbox}`)));
    const onError = (error: Error): void => settle(() => reject(asRoutingError(error, sandbox)));
    const onTimeout = (): void =>
      settle(() => reject(new RoutingError(504, `Timed out waiting for the backend sandbox: ${sandbox}`)));
    const timer = setTimeout(onTimeout, timeoutMs);
    upstream.on("data", onData);
    upstream.once("end", onEnd);
    upstream.once("error", onError);
    upstream.resume();
  });
}

function statusOf(head: Buffer): number {
  const match = /^HTTP\/1\.[01] (\d{3})/.exec(head.toString("latin1", 0, 16));
  if (match === null) throw new RoutingError(502, "the sandbox did not answer with HTTP");
  return Number(match[1]);
}

function assertSameProtocol(request: IncomingMessage, head: Buffer): void {
  const answered = /\r\nupgrade:\s*([^\r]+)\r\n/i.exec(head.toString("latin1"))?.[1]?.trim().toLowerCase();
  if (answered !== request.headers.upgrade?.trim().toLowerCase())
    throw new RoutingError(502, "the sandbox switched to another protocol than was asked for");
}

/** Passes an ordinary answer on, and ends the caller's connection behind it: nothing else was asked of it. */
function relayRefusal(socket: Duplex, upstream: Duplex, first: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    let isChunked = false;
    let isBegun = false;
    const writer = new StreamWriter(socket);
    const fail = (error: Error): void => {
      if (!isBegun) return reject(error);
      // The answer has begun: cutting it is the only way left to say that it is incomplete.
      socket.destroy();
      resolve();
    };
    const parser = new ResponseParser({
      onInformation: () => undefined,
      onHead: (head) => {
        isBegun = true;
        isChunked = head.contentLength === undefined && head.status !== 204 && head.status !== 304;
        writer.write(refusalHead(head, isChunked));
      },
      onBody: (chunk) => {
        if (isChunked) writer.write(`${chunk.length.toString(16)}\r\n`);
        writer.write(chunk);
        if (isChunked) writer.write("\r\n");
      },
      onEnd: () => {
        socket.end(isChunked ? "0\r\n\r\n" : undefined);
        resolve();
      },
    });
    const take = (chunk: Buffer): void => {
      try {
        parser.push(chunk);
        holdBack(upstream, writer);
      } catch (error) {
        fail(error as Error);
      }
    };
    socket.once("close", () => resolve());
    upstream.on("data", take);
    upstream.once("error", fail);
    upstream.once("end", () => (parser.end() ? resolve() : fail(new Error("the answer to an upgrade broke off"))));
    parser.expect("GET");
    upstream.resume();
    take(first);
  });
}

function refusalHead({ status, statusText, headers }: ResponseHead, isChunked: boolean): string {
  const lines = [`HTTP/1.1 ${status} ${statusText}`];
  for (let index = 0; index + 1 < headers.length; index += 2) lines.push(`${headers[index]}: ${headers[index + 1]}`);
  if (isChunked) lines.push("Transfer-Encoding: chunked");
  return `${[...lines, "Connection: close"].join("\r\n")}\r\n\r\n`;
}
