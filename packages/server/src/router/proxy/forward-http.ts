import type { IncomingMessage, ServerResponse } from "node:http";
import { holdBack, StreamWriter } from "@agent-sandbox/kube";
import { RoutingError } from "../routing-error.ts";
import { FellAsleepError, upstreamOf } from "./dial.ts";
import type { RoutedExchange } from "./exchange.ts";
import { hasBody, requestHead } from "./headers.ts";
import { http2ResponseOf } from "./http2-face.ts";
import type { Departure, Outbox } from "./outbox.ts";
import type { ResponseHead } from "./response-parser.ts";
import type { RetryPolicy } from "./retry.ts";
import type { UpstreamConnection, UpstreamExchange } from "./upstream-connection.ts";
import type { UpstreamPool } from "./upstream-pool.ts";

/** How exchanges are carried. */
export interface ForwardOptions {
  readonly pool: UpstreamPool;
  readonly outbox: Outbox;
  readonly retry: RetryPolicy;
  readonly ownCookie: string;
  /** From the start to the first byte of the answer, where the caller names no limit of his own. */
  readonly firstByteTimeoutMs: number;
  /** The longest limit that a caller may name. */
  readonly callerTimeoutMaxMs: number;
  /** A request body above this is refused with 413; 0 means no limit. */
  readonly bodyBytesMax: number;
  /** Set while the router drains: then an answer ends its connection. */
  readonly closing: { isClosing: boolean };
}

/**
 * Called once when an exchange has ended. Without an error, or with one after the answer began, nothing is left to say to
 * the caller.
 */
export type ForwardDone = (error?: unknown) => void;

/** Carries one exchange over HTTP/1.1 to the sandbox. */
export function forwardHttp(exchange: RoutedExchange, options: ForwardOptions, done: ForwardDone): void {
  new HttpForward(exchange, options, done).start();
}

/** Methods that may be sent again when a kept connection turns out to be dead. */
const repeatable: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"]);

/** What is left of a request's body after its answer is read for this long, so that the caller sees the answer and not a reset. */
const lingerMs = 2_000;

class HttpForward implements UpstreamExchange, Departure {
  readonly #exchange: RoutedExchange;
  readonly #options: ForwardOptions;
  readonly #done: ForwardDone;
  readonly #hasBody: boolean;
  readonly #isRepeatable: boolean;
  readonly #timer: NodeJS.Timeout;
  #connection: UpstreamConnection | undefined;
  #isChunked = false;
  #bodyBytes = 0;
  #isUnsent = true;
  #isOver = false;
  /** The end of an answer of known length, until it departs. */
  #lastChunk: Buffer | undefined;
  /** The head of the answer, until it is sent. */
  #head: ResponseHead | undefined;
  /** Made for a caller who reads slower than the sandbox writes; most never are. */
  #writer: StreamWriter | undefined;

  constructor(exchange: RoutedExchange, options: ForwardOptions, done: ForwardDone) {
    const { request, target } = exchange;
    this.#exchange = exchange;
    this.#options = options;
    this.#done = done;
    // A request of HTTP/2 may have a body without saying so.
    this.#hasBody = hasBody(request.headers) || (request.httpVersionMajor >= 2 && !request.readableEnded);
    this.#isRepeatable = !this.#hasBody && repeatable.has(request.method ?? "");
    const limitMs =
      target.timeoutMs === undefined
        ? options.firstByteTimeoutMs
        : Math.min(target.timeoutMs, options.callerTimeoutMaxMs);
    this.#timer = setTimeout(onFirstByteTimeout, limitMs, this);
  }

  start(): void {
    const { response, address, target } = this.#exchange;
    response.once("close", () => this.#onCallerGone());
    const kept = this.#options.pool.take(upstreamOf(address, target), this.#isRepeatable);
    if (kept === undefined) this.#dial();
    else this.#send(kept);
  }

  /** The answer did not begin in time. */
  timeOut(): void {
    const { target } = this.#exchange;
    // The limit that a client set itself is answered with a status that clients do not retry.
    const isOwnLimit = target.timeoutMs !== undefined && this.#mayRun;
    this.#fail(new RoutingError(isOwnLimit ? 408 : 504, `Timed out waiting for the backend sandbox: ${target.name}`));
  }

  /** Published clients send a request again that ended with a 5xx, and so would run again what may be running. */
  get #mayRun(): boolean {
    return !this.#isUnsent && !this.#isRepeatable;
  }

  onInformation({ status, headers }: ResponseHead): void {
    const { response } = this.#exchange;
    if (status === 100) response.writeContinue();
    else if (status === 102) response.writeProcessing();
    else if (status === 103) relayEarlyHints(response, headers);
  }

  onHead(head: ResponseHead): void {
    clearTimeout(this.#timer);
    this.#head = head;
    // An event stream may have nothing to say for minutes, so its headers go out at once; a body of known length follows
    // immediately, and then head and body share one packet. Until then nothing has been answered, and a repeatable request of a sandbox that fell
    // asleep between the two is made again.
    if (head.contentLength !== undefined) return;
    this.#writeHead();
    this.#exchange.response.flushHeaders();
  }

  #writeHead(): void {
    const { response } = this.#exchange;
    const head = this.#head;
    this.#head = undefined;
    if (head === undefined) return;
    if (response.req.httpVersionMajor < 2) {
      if (this.#options.closing.isClosing) response.shouldKeepAlive = false;
      response.writeHead(head.status, head.statusText, head.headers);
    } else response.writeHead(head.status, head.headers);
  }

  onBody(chunk: Buffer, isLast: boolean): void {
    if (isLast) {
      this.#lastChunk = chunk;
      return;
    }
    const { response } = this.#exchange;
    this.#writeHead();
    if (response.write(chunk) || this.#connection === undefined) return;
    this.#writer ??= writerOf(response);
    holdBack(this.#connection, this.#writer);
  }

  onEnd(trailers: readonly string[]): void {
    this.#writeHead();
    if (trailers.length > 0) this.#exchange.response.addTrailers(pairs(trailers));
    this.#connection = undefined;
    this.#options.outbox.post(this);
  }

  /** Sends the end of the answer. */
  depart(): void {
    const { request, response } = this.#exchange;
    if (this.#isOver) return;
    try {
      endWith(response, this.#lastChunk);
    } catch (error) {
      // Other exchanges leave after this one, and an exception here would end the process.
      return this.#fail(error);
    }
    if (this.#hasBody && !request.complete && request.httpVersionMajor < 2) lingerOn(request);
    if (isHandedOver(response)) this.#finish();
    else response.once("finish", () => this.#finish());
  }

  onDrain(): void {
    this.#exchange.request.resume();
  }

  onFailure(error: Error, isUntouched: boolean): void {
    const wasReused = this.#connection?.isReused === true;
    this.#connection = undefined;
    if (this.#isRepeatable && !this.#isOver) {
      // The server closed the kept connection while the request was on its way to it; nothing was answered.
      if (isUntouched && wasReused && !(error instanceof FellAsleepError)) return this.#dial();
      // It counts as one that was never sent, and waits for the sandbox's wake like any other.
      this.#isUnsent = error instanceof FellAsleepError && !this.#exchange.response.headersSent;
    }
    const { form, name, path } = this.#exchange.target;
    // The one call of theirs that must not run twice; everybody else reads 502, as from any proxy.
    const isCommand = form === "header" && path === "/execute";
    const mayBeSentAgain = isCommand && this.#mayRun && !(error instanceof RoutingError);
    this.#fail(mayBeSentAgain ? new RoutingError(408, lostText(name), { cause: error }) : error);
  }

  /** The body is not touched before there is a connection: a failed dial leaves it for the next attempt. */
  #dial(): void {
    const { pool, retry } = this.#options;
    const { target } = this.#exchange;
    const attempt = (): Promise<UpstreamConnection> => pool.open(upstreamOf(this.#exchange.currentAddress(), target));
    retry
      .run(attempt, () => this.#isOver, target.namespace)
      .then(
        (connection) => (this.#isOver ? connection.abort() : this.#send(connection)),
        (error: Error) => this.#fail(error),
      );
  }

  #send(connection: UpstreamConnection): void {
    const { request } = this.#exchange;
    this.#connection = connection;
    this.#isUnsent = false;
    this.#isChunked = this.#hasBody && request.headers["content-length"] === undefined;
    const head = requestHead(this.#exchange, this.#options.ownCookie, this.#isChunked);
    connection.begin(this, request.method ?? "GET", head);
    if (this.#hasBody) this.#sendBody(request);
    else connection.finishRequest();
  }

  #sendBody(request: IncomingMessage): void {
    request.on("data", (chunk: Buffer) => this.#sendChunk(chunk));
    request.once("end", () => {
      if (this.#isChunked) this.#connection?.write(lastChunk(request.rawTrailers));
      this.#connection?.finishRequest();
    });
    request.once("error", (error) => this.#fail(error));
  }

  #sendChunk(chunk: Buffer): void {
    const connection = this.#connection;
    if (connection === undefined) return;
    const { bodyBytesMax } = this.#options;
    this.#bodyBytes += chunk.length;
    if (bodyBytesMax > 0 && this.#bodyBytes > bodyBytesMax)
      return this.#fail(new RoutingError(413, `request body is larger than ${bodyBytesMax} bytes`));
    if (this.#isChunked) connection.write(`${chunk.length.toString(16)}\r\n`);
    const takesMore = connection.write(chunk);
    if (this.#isChunked) connection.write("\r\n");
    if (!takesMore) this.#exchange.request.pause();
  }

  #onCallerGone(): void {
    const { response } = this.#exchange;
    if (!response.writableFinished) this.#fail(new RoutingError(499, "the caller went away"));
  }

  #fail(error: unknown): void {
    const { response, target } = this.#exchange;
    this.#connection?.abort();
    this.#connection = undefined;
    if (this.#isOver) return;
    // The answer has begun: cutting the connection is the only way left to say that it is incomplete.
    if (response.headersSent && !response.writableFinished) response.destroy();
    this.#finish(this.#isUnsent ? asUnsentError(error, target.name) : asRoutingError(error, target.name));
  }

  #finish(error?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#done(error);
  }
}

/** The object that Node puts over a stream of HTTP/2 does not tell when it is full; the stream does. */
function writerOf(response: ServerResponse): StreamWriter {
  return new StreamWriter(http2ResponseOf(response)?.stream ?? response);
}

/** Up to here copying a body is cheaper than a second piece in the write. */
const joinedBytesMax = 8 * 1024;

/** Ends an answer. As text a short body leaves in one piece with the head; Latin-1 is byte for byte. */
function endWith(response: ServerResponse, chunk: Buffer | undefined): void {
  const isJoined = chunk !== undefined && chunk.length <= joinedBytesMax && response.req.httpVersionMajor < 2;
  if (isJoined) response.end(chunk.toString("latin1"), "latin1");
  else response.end(chunk);
}

/** Whether the kernel has the whole answer; told without waiting for the event that says so a moment later. */
function isHandedOver(response: ServerResponse): boolean {
  return response.writableFinished || (response.req.httpVersionMajor < 2 && response.socket?.writableLength === 0);
}

const lostText = (sandbox: string): string =>
  `The connection to sandbox ${sandbox} was lost before it answered; what was asked of it may have run.`;

function onFirstByteTimeout(forward: HttpForward): void {
  forward.timeOut();
}

function lingerOn(request: IncomingMessage): void {
  request.removeAllListeners("data");
  request.resume();
  const timer = setTimeout(() => request.socket.destroy(), lingerMs);
  request.once("close", () => clearTimeout(timer));
}

function relayEarlyHints(response: ServerResponse, headers: readonly string[]): void {
  const links = headers.filter((_each, index) => index % 2 === 1 && headers[index - 1]?.toLowerCase() === "link");
  if (links.length > 0) response.writeEarlyHints({ link: links });
}

function lastChunk(trailers: readonly string[]): string {
  let text = "0\r\n";
  for (let index = 0; index + 1 < trailers.length; index += 2) text += `${trailers[index]}: ${trailers[index + 1]}\r\n`;
  return `${text}\r\n`;
}

function pairs(flat: readonly string[]): [string, string][] {
  return flat.flatMap((name, index) => (index % 2 === 0 ? [[name, flat[index + 1] ?? ""] as [string, string]] : []));
}

/** A failure to connect. */
export function asUnsentError(error: unknown, sandbox: string): RoutingError {
  return Object.assign(asRoutingError(error, sandbox), { isUnsent: true });
}

/** Every upstream failure becomes an answer; the caller's own going away keeps its reason. */
export function asRoutingError(error: unknown, sandbox: string): RoutingError {
  if (error instanceof RoutingError) return error;
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ETIMEDOUT")
    return new RoutingError(504, `Timed out waiting for the backend sandbox: ${sandbox}`, { cause: error });
  return new RoutingError(502, `Could not connect to the backend sandbox: ${sandbox}`, { cause: error });
}
