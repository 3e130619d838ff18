/** One request to a port of a sandbox. */
export interface PlaneRequest {
  readonly method: string;
  readonly port: number;
  /** Path with query, percent-encoded by the caller. */
  readonly path: string;
  /** Names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string | AsyncIterable<Uint8Array>;
  readonly signal?: AbortSignal | undefined;
}

/** The answer; `body` is read once, or given up by ending the iteration early. */
export interface PlaneResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: AsyncIterable<Uint8Array>;
}

/**
 * A way to one sandbox. Which one (router, tunnel, pod address, browser fetch) is chosen once and never seen by callers.
 * `request` resolves with any status of the sandbox itself and rejects with a SandboxError where the sandbox was not
 * reached, or with the signal's reason.
 */
export interface DataPlane {
  request(request: PlaneRequest): Promise<PlaneResponse>;
  close(): Promise<void>;
}

/** The port on which sandboxd serves. */
export const daemonPort = 49_900;

/** Reads a whole body. */
export async function readBytes(body: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  return joined(await readChunks(body));
}

/** Reads a whole body as the pieces it came in. */
export async function readChunks(body: AsyncIterable<Uint8Array>): Promise<Uint8Array[]> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return chunks;
}

/** The bytes of all pieces together. */
export function sizeOf(chunks: readonly Uint8Array[]): number {
  return chunks.reduce((sum, { length }) => sum + length, 0);
}

/** Pieces as one. */
export function joined(chunks: readonly Uint8Array[]): Uint8Array {
  const [only] = chunks;
  if (chunks.length === 1 && only !== undefined) return only;
  const whole = new Uint8Array(sizeOf(chunks));
  let offset = 0;
  for (const chunk of chunks) {
    whole.set(chunk, offset);
    offset += chunk.length;
  }
  return whole;
}

/** Reads a whole body as UTF-8 text; what is not valid is replaced. */
export async function readText(body: AsyncIterable<Uint8Array>): Promise<string> {
  return new TextDecoder().decode(await readBytes(body));
}
