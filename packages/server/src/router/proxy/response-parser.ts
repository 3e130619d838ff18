import { RoutingError } from "../routing-error.ts";
import { isHopByHop, unsentHeader } from "./headers.ts";

/** The head of an answer, without the headers of its connection. */
export interface ResponseHead {
  readonly status: number;
  readonly statusText: string;
  /** Name, value, name, value ... */
  readonly headers: string[];
  /** Absent where the body is chunked or ends with the connection. */
  readonly contentLength?: number;
}

/** Told of an answer as it arrives. */
export interface ResponseSink {
  /** A 1xx ahead of the answer. */
  onInformation(head: ResponseHead): void;
  onHead(head: ResponseHead): void;
  /** `isLast` is set where the end is known before it is reached: then `onEnd` follows at once. */
  onBody(chunk: Buffer, isLast: boolean): void;
  /** Trailers as name, value, name, value ... */
  onEnd(trailers: readonly string[]): void;
}

/** Longer heads are refused: more than any server sends, small enough to hold for every connection. */
const headBytesMax = 64 * 1024;
/** A chunk's size line with its extensions. */
const sizeLineBytesMax = 4096;
const [carriageReturn, lineFeed] = [13, 10];

type State = "head" | "sized" | "chunk-size" | "chunk" | "chunk-end" | "trailers" | "until-close" | "done";

/** Reads one HTTP/1.1 answer after the other off a connection. The sender is untrusted code: anything that is not exactly HTTP/1.1 throws. */
export class ResponseParser {
  readonly #sink: ResponseSink;
  #state: State = "done";
  #method = "";
  /** Bytes of an unfinished head, size line or trailer; bounded by the limits above. */
  #pending: Buffer | undefined;
  #bytesLeft = 0;
  #isReusable = false;

  constructor(sink: ResponseSink) {
    this.#sink = sink;
  }

  /** Expects the answer to a request of this method. Preconditions: the answer before it is done. */
  expect(method: string): void {
    this.#method = method;
    this.#state = "head";
    this.#isReusable = false;
  }

  /** Whether the connection can carry another request when the answer is done. */
  get isReusable(): boolean {
    return this.#isReusable && this.#state === "done";
  }

  /** Takes what arrived. Throws RoutingError on anything that is not an answer. */
  push(chunk: Buffer): void {
    let rest: Buffer | undefined = chunk;
    while (rest !== undefined && rest.length > 0) rest = this.#step(rest);
  }

  /** The connection ended. Returns whether the answer was complete. */
  end(): boolean {
    if (this.#state === "until-close") this.#finish([]);
    return this.#state === "done";
  }

  #step(bytes: Buffer): Buffer | undefined {
    switch (this.#state) {
      case "head":
        return this.#head(bytes);
      case "sized":
      case "chunk":
        return this.#body(bytes);
      case "chunk-size":
        return this.#chunkSize(bytes);
      case "chunk-end":
        return this.#chunkEnd(bytes);
      case "trailers":
        return this.#trailers(bytes);
      case "until-close":
        this.#sink.onBody(bytes, false);
        return undefined;
      case "done":
        throw malformed("sent more than its answer");
      default:
        return this.#state satisfies never;
    }
  }

  #head(bytes: Buffer): Buffer | undefined {
    const whole = this.#joined(bytes);
    const end = whole.indexOf("\r\n\r\n");
    if (end === -1) return this.#wait(whole, headBytesMax);
    const parsed = parseHead(whole.toString("latin1", 0, end));
    const rest = whole.subarray(end + 4);
    if (parsed.head.status < 200) {
      if (parsed.head.status === 101) throw malformed("attempted an upgrade that was not asked for");
      this.#sink.onInformation(parsed.head);
      return rest;
    }
    this.#begin(parsed);
    return rest;
  }

  #begin({ head, isChunked, isKept }: ParsedHead): void {
    const { status, contentLength } = head;
    this.#isReusable = isKept;
    const isEmpty = this.#method === "HEAD" || status === 204 || status === 304;
    if (isEmpty || (contentLength === 0 && !isChunked)) {
      this.#sink.onHead(head);
      return this.#finish([]);
    }
    if (isChunked) this.#state = "chunk-size";
    else if (contentLength === undefined) {
      this.#state = "until-close";
      this.#isReusable = false;
    } else {
      this.#state = "sized";
      this.#bytesLeft = contentLength;
    }
    this.#sink.onHead(head);
  }

  #body(bytes: Buffer): Buffer | undefined {
    const taken = bytes.length > this.#bytesLeft ? bytes.subarray(0, this.#bytesLeft) : bytes;
    this.#bytesLeft -= taken.length;
    const isLast = this.#bytesLeft === 0;
    if (isLast && this.#state === "chunk") this.#state = "chunk-end";
    const isSized = this.#state === "sized";
    this.#sink.onBody(taken, isLast && isSized);
    if (isLast && isSized) this.#finish([]);
    return bytes.length === taken.length ? undefined : bytes.subarray(taken.length);
  }

  #chunkSize(bytes: Buffer): Buffer | undefined {
    const whole = this.#joined(bytes);
    const end = whole.indexOf(lineFeed);
    if (end === -1) return this.#wait(whole, sizeLineBytesMax);
    const match = /^([0-9a-f]{1,12})[ \t]*(?:;[^\r\n]*)?\r$/i.exec(whole.toString("latin1", 0, end));
    if (match === null) throw malformed("sent a malformed chunk");
    this.#bytesLeft = Number.parseInt(match[1] as string, 16);
    this.#state = this.#bytesLeft === 0 ? "trailers" : "chunk";
    return whole.subarray(end + 1);
  }

  #chunkEnd(bytes: Buffer): Buffer | undefined {
    const whole = this.#joined(bytes);
    if (whole.length < 2) return this.#wait(whole, 2);
    if (whole[0] !== carriageReturn || whole[1] !== lineFeed) throw malformed("sent a malformed chunk");
    this.#state = "chunk-size";
    return whole.subarray(2);
  }

  #trailers(bytes: Buffer): Buffer | undefined {
    const whole = this.#joined(bytes);
    const isEmpty = whole[0] === carriageReturn && whole[1] === lineFeed;
    const end = isEmpty ? -2 : whole.indexOf("\r\n\r\n");
    if (end === -1) return this.#wait(whole, headBytesMax);
    this.#finish(isEmpty ? [] : parseTrailers(whole.toString("latin1", 0, end)));
    return whole.subarray(end + 4);
  }

  #joined(bytes: Buffer): Buffer {
    const whole = this.#pending === undefined ? bytes : Buffer.concat([this.#pending, bytes]);
    this.#pending = undefined;
    return whole;
  }

  #wait(whole: Buffer, bytesMax: number): undefined {
    if (whole.length > bytesMax) throw malformed("sent an answer whose head is too long");
    this.#pending = whole;
    return undefined;
  }

  #finish(trailers: readonly string[]): void {
    this.#state = "done";
    this.#sink.onEnd(trailers);
  }
}

interface ParsedHead {
  readonly head: ResponseHead;
  readonly isChunked: boolean;
  readonly isKept: boolean;
}

const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** What no line of a head may hold: Node refuses to write it, and where a head is written as text a lone line feed would begin a header of its own. */
const control = /[^\t\x20-\x7e\x80-\xff]/;

const statusLine = /^HTTP\/1\.([01]) ([1-9]\d{2})(?: (.*))?$/;

function parseHead(text: string): ParsedHead {
  let end = lineEnd(text, 0);
  const match = statusLine.exec(text.slice(0, end));
  if (match === null || control.test(match[3] ?? "")) throw malformed("did not answer with HTTP/1.1");
  const headers: string[] = [];
  let contentLength: number | undefined;
  let isChunked = false;
  let isKept = match[1] === "1";
  let named: string[] | undefined;
  while (end < text.length) {
    const start = end + 2;
    end = lineEnd(text, start);
    const colon = text.indexOf(":", start);
    const name = text.slice(start, colon);
    if (colon <= start || colon >= end || !token.test(name)) throw malformed("sent a malformed header");
    const value = parseValue(text.slice(colon + 1, end));
    const lower = name.toLowerCase();
    if (lower === "content-length") contentLength = parseLength(value, contentLength);
    else if (isHopByHop(lower)) {
      if (lower === "transfer-encoding") isChunked = parseCoding(value);
      else if (lower === "connection") {
        const words = value.toLowerCase();
        if (words.includes("close")) isKept = false;
        else if (words !== "keep-alive") named = (named ?? []).concat(words.split(",").map((word) => word.trim()));
      }
      if (lower !== "trailer") continue;
    }
    if (lower !== unsentHeader) headers.push(name, value);
  }
  // An answer with two ways to find the end of its body is refused: a proxy behind us could take the other way.
  if (isChunked && contentLength !== undefined) throw malformed("sent both a length and chunks");
  const [status, statusText, kept] = [Number(match[2]), match[3] ?? "", without(headers, named)];
  const head: ResponseHead =
    contentLength === undefined
      ? { status, statusText, headers: kept }
      : { status, statusText, headers: kept, contentLength };
  return { head, isChunked, isKept };
}

function lineEnd(text: string, start: number): number {
  const end = text.indexOf("\r\n", start);
  return end === -1 ? text.length : end;
}

function parseValue(text: string): string {
  const value = text.trim();
  if (control.test(value)) throw malformed("sent a control character in a header");
  return value;
}

function parseLength(value: string, before: number | undefined): number {
  const length = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
  if (Number.isNaN(length) || (before !== undefined && before !== length)) throw malformed("sent a malformed length");
  return length;
}

function parseCoding(value: string): boolean {
  if (value.toLowerCase() !== "chunked") throw malformed(`sent the transfer coding ${JSON.stringify(value)}`);
  return true;
}

function without(headers: string[], named: readonly string[] | undefined): string[] {
  if (named === undefined) return headers;
  return headers.filter((_each, index) => !named.includes((headers[index & ~1] as string).toLowerCase()));
}

function parseTrailers(text: string): string[] {
  return text.split("\r\n").flatMap((line) => {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon);
    if (colon < 1 || !token.test(name)) throw malformed("sent a malformed trailer");
    return [name, parseValue(line.slice(colon + 1))];
  });
}

function malformed(what: string): RoutingError {
  return new RoutingError(502, `The backend sandbox ${what}.`);
}
