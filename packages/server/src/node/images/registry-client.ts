import { z } from "zod";
import type { BlobSource } from "./blob-store.ts";
import { ImageError } from "./image-error.ts";
import { digestOf, manifestBytesMax, manifestMediaTypes } from "./manifest.ts";
import { parseChallenge, type RegistryCredentials } from "./registry-auth.ts";
import { credentialsHint, describeFailure, NoAnswerError } from "./registry-failure.ts";

/** One place an image can be fetched from. */
export interface RegistryEndpoint {
  /** `https://host:port` or `http://host:port`. */
  readonly url: string;
  readonly credentials?: RegistryCredentials;
}

/** What a client speaks HTTP with; the platform's `fetch`. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** How long a registry may take to begin its answer. */
const responseTimeoutMs = 30_000;

const tokenSchema = z.object({ token: z.string().optional(), access_token: z.string().optional() });

/** Talks to one repository of one registry, pull only. */
export class RegistryClient {
  readonly #endpoint: RegistryEndpoint;
  readonly #repository: string;
  readonly #fetch: Fetch;
  readonly #signal: AbortSignal;
  #authorization: string | undefined;

  constructor(options: { endpoint: RegistryEndpoint; repository: string; fetch: Fetch; signal: AbortSignal }) {
    this.#endpoint = options.endpoint;
    this.#repository = options.repository;
    this.#fetch = options.fetch;
    this.#signal = options.signal;
  }

  /** The manifest under a tag or digest, and the digest of exactly these bytes. */
  async manifest(reference: string): Promise<{ readonly bytes: Buffer; readonly digest: string }> {
    const response = await this.#get(`manifests/${reference}`, { accept: manifestMediaTypes.join(", ") });
    const bytes = await readBounded(response, manifestBytesMax);
    const digest = digestOf(bytes);
    if (reference.startsWith("sha256:") && digest !== reference) {
      throw new ImageError("digest-mismatch", `manifest ${reference} of ${this.#repository} has the digest ${digest}`);
    }
    return { bytes, digest };
  }

  /** A source for a blob that continues where an earlier try stopped, if the registry lets it. */
  blob(digest: string): BlobSource {
    return async (fromByte) => {
      const headers: Record<string, string> = fromByte > 0 ? { range: `bytes=${fromByte}-` } : {};
      const response = await this.#get(`blobs/${digest}`, headers);
      if (response.body === null) throw new ImageError("unavailable", `registry sent no body for ${digest}`);
      return {
        startsAt: response.status === 206 ? fromByte : 0,
        bytes: this.#bodyOf(response.body, digest),
      };
    };
  }

  /** A connection that is cut is the registry's failure, and worth another try. */
  async *#bodyOf(body: AsyncIterable<Uint8Array>, digest: string): AsyncIterable<Uint8Array> {
    try {
      yield* body;
    } catch (cause) {
      this.#signal.throwIfAborted();
      const { url } = this.#endpoint;
      throw new ImageError("unavailable", `registry ${url} broke off ${digest}: ${reasonOf(cause)}`, { cause });
    }
  }

  async #get(path: string, headers: Record<string, string>): Promise<Response> {
    const url = `${this.#endpoint.url}/v2/${this.#repository}/${path}`;
    let response = await this.#send(url, headers);
    if (response.status === 401) {
      const challenge = response.headers.get("www-authenticate") ?? "";
      await response.body?.cancel();
      this.#authorization = await this.#authorize(challenge);
      response = await this.#send(url, headers);
    }
    if (response.ok) return response;
    await response.body?.cancel();
    throw statusError(response.status, `${this.#repository}/${path}`, this.#endpoint.url);
  }

  async #send(url: string, headers: Record<string, string>): Promise<Response> {
    const authorization =
      this.#authorization === undefined || headers["authorization"] !== undefined
        ? {}
        : { authorization: this.#authorization };
    // Only the wait for the answer has a limit; a large layer may take as long as it moves.
    const slow = new AbortController();
    const timer = setTimeout(
      () => slow.abort(new NoAnswerError(`no answer within ${responseTimeoutMs} ms`)),
      responseTimeoutMs,
    );
    try {
      const signal = AbortSignal.any([this.#signal, slow.signal]);
      return await this.#fetch(url, { headers: { ...headers, ...authorization }, signal, redirect: "follow" });
    } catch (cause) {
      this.#signal.throwIfAborted();
      throw new ImageError("unavailable", describeFailure(url, cause), { cause });
    } finally {
      clearTimeout(timer);
    }
  }

  async #authorize(header: string): Promise<string> {
    const challenge = parseChallenge(header);
    const { credentials } = this.#endpoint;
    if (credentials?.kind === "token") return `Bearer ${credentials.token}`;
    const basic =
      credentials === undefined
        ? undefined
        : `Basic ${Buffer.from(`${credentials.username}:${credentials.password}`).toString("base64")}`;
    if (challenge?.scheme === "basic" && basic !== undefined) return basic;
    const realm = challenge?.parameters["realm"];
    if (challenge?.scheme !== "bearer" || realm === undefined) {
      const wants = `registry ${this.#endpoint.url} wants credentials for ${this.#repository}; ${credentialsHint}`;
      throw new ImageError("unauthorized", wants);
    }
    const url = new URL(realm);
    const service = challenge.parameters["service"];
    if (service !== undefined) url.searchParams.set("service", service);
    url.searchParams.set("scope", challenge.parameters["scope"] ?? `repository:${this.#repository}:pull`);
    const response = await this.#send(url.href, basic === undefined ? {} : { authorization: basic });
    if (!response.ok) throw statusError(response.status, `token for ${this.#repository}`, url.origin);
    const parsed = tokenSchema.safeParse(JSON.parse((await readBounded(response, manifestBytesMax)).toString("utf8")));
    const token = parsed.data?.token ?? parsed.data?.access_token;
    if (token === undefined) throw new ImageError("unauthorized", `token service ${url.origin} sent no token`);
    return `Bearer ${token}`;
  }
}

function statusError(status: number, what: string, where: string): ImageError {
  if (status === 404) return new ImageError("not-found", `${what}: not found at ${where}`);
  if (status === 401 || status === 403)
    return new ImageError("unauthorized", `${what}: ${where} refused (${status}); ${credentialsHint}`);
  return new ImageError("unavailable", `${what}: ${where} answered ${status}`);
}

function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}

async function readBounded(response: Response, bytesMax: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > bytesMax) throw new ImageError("malformed", `answer is larger than ${bytesMax} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
