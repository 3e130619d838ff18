import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { backoffMs, type Clock, delay } from "@agent-sandbox/kube";
import { ArchiveError } from "./archive-error.ts";
import { type ArchiveStore, type StoredContent, textBytesMax } from "./archive-store.ts";
import { emptySha256, type S3Credentials, signRequest } from "./sign-request.ts";

/** What an S3 store needs to know. */
export interface S3StoreOptions {
  /** Of the service, without the bucket: `https://s3.eu-central-1.amazonaws.com`. */
  readonly endpoint: URL;
  readonly bucket: string;
  /** Begins the names of all objects; empty or ending in `/`. */
  readonly prefix: string;
  readonly credentials: S3Credentials;
  readonly clock: Clock;
  readonly random: () => number;
  /** How long nothing may arrive or leave on a connection. Default 60 s. */
  readonly idleTimeoutMs?: number;
}

/** A store that restarts is back within this many tries, half a minute in all. */
const triesMax = 6;

/** More objects than an archive has with a hundred thousand sandboxes of ten parts each: a list that goes on after that is not a list of ours. */
const namesMax = 1_000_000;
const tryBackoff = { firstMs: 500, maxMs: 16_000 };

/** Longer than a store takes to write what it was sent. */
const idleTimeoutDefaultMs = 60_000;

/** The header in which an object's digest comes back with it, also from stores that know no checksums. */
const digestHeader = "x-amz-meta-sha256";

interface Call {
  readonly method: "GET" | "HEAD" | "PUT" | "DELETE";
  /** Below bucket and prefix; undefined: the bucket itself. */
  readonly name?: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: { readonly sizeBytes: number; readonly sha256: string; readonly open: () => Readable };
}

/** Archives in object storage that speaks S3, each object below the bucket's path. What goes out is signed with its digest, which the store compares. */
export class S3Store implements ArchiveStore {
  readonly #options: S3StoreOptions;

  constructor(options: S3StoreOptions) {
    this.#options = options;
  }

  async has(name: string, { sizeBytes, sha256 }: StoredContent, signal: AbortSignal): Promise<boolean> {
    const headers = await this.#try({ method: "HEAD", name }, signal, async (answer) => {
      answer.resume();
      return answer.headers;
    });
    return headers?.["content-length"] === String(sizeBytes) && headers[digestHeader] === sha256;
  }

  async putFile(name: string, file: StoredContent & { readonly path: string }, signal: AbortSignal): Promise<void> {
    await this.#put(name, { ...file, open: () => createReadStream(file.path) }, signal);
    if (!(await this.has(name, file, signal)))
      throw new ArchiveError("unavailable", `${name} was taken by the store, which has something else under its name`);
  }

  async getFile(name: string, file: StoredContent & { readonly path: string }, signal: AbortSignal): Promise<void> {
    const found = await this.#try({ method: "GET", name }, signal, async (answer) => {
      const hash = createHash("sha256");
      let length = 0;
      answer.on("data", (bytes: Buffer) => {
        hash.update(bytes);
        length += bytes.length;
        // A store that sends without end would fill the disk.
        if (length > file.sizeBytes)
          answer.destroy(new ArchiveError("damaged", `${name} is longer than what was written`));
      });
      await pipeline(answer, createWriteStream(file.path, { mode: 0o600 }));
      // A connection that was cut is tried again; a whole answer that is wrong may be a proxy's, and is too.
      if (hash.digest("hex") !== file.sha256) throw new ArchiveError("damaged", `${name} is not what was written`);
      return true;
    });
    if (found === undefined) throw new ArchiveError("not-found", `${name} is not in the archive`);
  }

  async putText(name: string, text: string, signal: AbortSignal): Promise<void> {
    const bytes = Buffer.from(text);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    await this.#put(name, { sizeBytes: bytes.length, sha256, open: () => Readable.from([bytes]) }, signal);
  }

  getText(name: string, signal: AbortSignal): Promise<string | undefined> {
    return this.#try({ method: "GET", name }, signal, async (answer) => {
      const text = await readText(answer);
      const { [digestHeader]: digest } = answer.headers;
      if (digest !== undefined && digest !== createHash("sha256").update(text).digest("hex"))
        throw new ArchiveError("damaged", `${name} is not what was written`);
      return text;
    });
  }

  async list(prefix: string, signal: AbortSignal): Promise<readonly string[]> {
    const whole = `${this.#options.prefix}${prefix}`;
    const names: string[] = [];
    let token: string | undefined;
    do {
      const query = { "list-type": "2", prefix: whole, ...(token !== undefined && { "continuation-token": token }) };
      const page = await this.#try({ method: "GET", query }, signal, readText);
      if (page === undefined) throw new ArchiveError("not-found", `there is no bucket ${this.#options.bucket}`);
      if (!page.includes("<ListBucketResult"))
        throw new ArchiveError("unavailable", "the store did not list its objects");
      names.push(...elements(page, "Key").map((key) => key.slice(this.#options.prefix.length)));
      const next = elements(page, "IsTruncated")[0] === "true" ? elements(page, "NextContinuationToken")[0] : undefined;
      if (names.length > namesMax || (next !== undefined && next === token))
        throw new ArchiveError("unavailable", "the store lists its objects without end");
      token = next;
    } while (token !== undefined);
    return names.sort();
  }

  async remove(name: string, signal: AbortSignal): Promise<void> {
    await this.#try({ method: "DELETE", name }, signal, readText);
  }

  async #put(name: string, body: NonNullable<Call["body"]>, signal: AbortSignal): Promise<void> {
    const headers = {
      "content-length": String(body.sizeBytes),
      "content-type": "application/octet-stream",
      "x-amz-checksum-sha256": Buffer.from(body.sha256, "hex").toString("base64"),
      [digestHeader]: body.sha256,
    };
    const done = await this.#try({ method: "PUT", name, headers, body }, signal, readText);
    if (done === undefined) throw new ArchiveError("not-found", `there is no bucket ${this.#options.bucket}`);
  }

  /** Sends a call until it is answered for good. Undefined: the store has no such object. */
  async #try<T>(
    call: Call,
    signal: AbortSignal,
    read: (answer: IncomingMessage) => Promise<T>,
  ): Promise<T | undefined> {
    for (let failures = 0; ; failures += 1) {
      try {
        return await this.#send(call, signal, read);
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        const failure = asFailure(call, error);
        const isLasting = failure.code === "denied" || failure.code === "invalid";
        if (isLasting || failures + 1 >= triesMax) throw failure;
      }
      await delay(this.#options.clock, backoffMs(failures, tryBackoff, this.#options.random), signal);
    }
  }

  async #send<T>(
    call: Call,
    signal: AbortSignal,
    read: (answer: IncomingMessage) => Promise<T>,
  ): Promise<T | undefined> {
    const outgoing = this.#open(call, signal);
    try {
      const [answer] = await Promise.all([answerOf(outgoing), sendBody(outgoing, call)]);
      const status = answer.statusCode ?? 0;
      if (status >= 200 && status < 300) return await read(answer);
      const text = call.method === "HEAD" ? "" : await readText(answer);
      if (status === 404) return undefined;
      throw refusal(call, status, text);
    } finally {
      outgoing.destroy();
    }
  }

  #open({ method, name, query = {}, headers = {}, body }: Call, signal: AbortSignal): ClientRequest {
    const { endpoint, bucket, prefix, credentials, clock, idleTimeoutMs = idleTimeoutDefaultMs } = this.#options;
    const path = name === undefined ? `/${bucket}` : `/${bucket}/${prefix}${name}`;
    const url = new URL(`${endpoint.pathname.replace(/\/$/, "")}${path}`, endpoint);
    for (const [key, value] of Object.entries(query)) url.searchParams.set(key, value);
    const unsigned = { method, url, headers, bodySha256: body?.sha256 ?? emptySha256 };
    const signed = signRequest(unsigned, credentials, clock.nowMs());
    const send = url.protocol === "https:" ? httpsRequest : httpRequest;
    const outgoing = send(url, { method, headers: signed, signal, agent: false });
    outgoing.setTimeout(idleTimeoutMs, () =>
      outgoing.destroy(new ArchiveError("unavailable", `the store was silent for ${idleTimeoutMs} ms`)),
    );
    return outgoing;
  }
}

function answerOf(outgoing: ClientRequest): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  outgoing.on("response", resolve);
  // It stays: an error after the answer is the reader's, who sees it as an answer that ended early.
  outgoing.on("error", reject);
  return promise;
}

/** A store that refuses answers before it has read everything: what could not be sent is no failure then. */
async function sendBody(outgoing: ClientRequest, { body }: Call): Promise<void> {
  if (body === undefined) {
    outgoing.end();
    return;
  }
  const source = body.open();
  outgoing.on("close", () => source.destroy());
  source.on("error", (error) => outgoing.destroy(error));
  source.pipe(outgoing);
}

async function readText(answer: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of answer) {
    length += (piece as Buffer).length;
    if (length > textBytesMax) throw new ArchiveError("damaged", `an answer is longer than ${textBytesMax} bytes`);
    pieces.push(piece as Buffer);
  }
  return Buffer.concat(pieces).toString("utf8");
}

function refusal({ method, name = "" }: Call, status: number, text: string): ArchiveError {
  const said = [elements(text, "Code")[0], elements(text, "Message")[0]].filter((part) => part !== undefined);
  const message = `${method} ${name}: the store answered ${status}${said.length > 0 ? `: ${said.join(": ")}` : ""}`;
  // A body that was changed on its way, and a clock that is not the store's yet, are other tries.
  const isTransient =
    status >= 500 || status === 408 || status === 429 || /Mismatch|BadDigest|Incomplete/.test(said[0] ?? "");
  const isDenied = status === 401 || status === 403;
  return new ArchiveError(
    said[0] !== "SignatureDoesNotMatch" && isTransient ? "unavailable" : isDenied ? "denied" : "invalid",
    message,
  );
}

function asFailure({ method, name = "" }: Call, error: unknown): ArchiveError {
  if (error instanceof ArchiveError) return error;
  return new ArchiveError("unavailable", `${method} ${name}: ${(error as Error).message}`, { cause: error });
}

/** The texts of all elements of a name. */
function elements(xml: string, name: string): string[] {
  return [...xml.matchAll(new RegExp(`<${name}>([^<]*)</${name}>`, "g"))].map(([, text = ""]) => unescaped(text));
}

const entities: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

function unescaped(text: string): string {
  return text.replace(/&(?:#(\d+)|#x([0-9a-fA-F]+)|(\w+));/g, (whole, decimal, hexadecimal, name) => {
    if (name !== undefined) return entities[name] ?? whole;
    return String.fromCodePoint(decimal === undefined ? Number.parseInt(hexadecimal, 16) : Number(decimal));
  });
}
