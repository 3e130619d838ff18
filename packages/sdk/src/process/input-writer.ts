import { isSandboxError, SandboxError } from "../errors/sandbox-error.ts";
import { toBase64 } from "../plane/base64.ts";
import type { ConnectClient } from "../plane/connect-client.ts";
import type { InputSource } from "./run-options.ts";
import { processService } from "./wire.ts";

/** A message may have 4 MiB at most, and base64 adds a third. */
const writeBytesMax = 2 * 2 ** 20;

const encoder = new TextEncoder();

/**
 * Standard input of a process. Writes are sent in order, one at a time, and resolve when the process has taken the
 * bytes. Bound: what callers do not await is theirs to bound.
 */
export class InputWriter {
  readonly #client: ConnectClient;
  readonly #id: string;
  #last: Promise<void> = Promise.resolve();

  constructor(client: ConnectClient, id: string) {
    this.#client = client;
    this.#id = id;
  }

  /** Writes bytes, or text as UTF-8. Never sent again after a lost connection: the process may have read it. */
  write(input: string | Uint8Array, options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    const bytes = typeof input === "string" ? encoder.encode(input) : input;
    return this.#inOrder(async () => {
      for (let at = 0; at < bytes.length; at += writeBytesMax) {
        const data = toBase64(bytes.subarray(at, at + writeBytesMax));
        await this.#send({ data }, options);
      }
    });
  }

  /** Closes standard input behind what was written; on a terminal it types end-of-file. */
  end(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    return this.#inOrder(async () => {
      await this.#send({ close: true }, options);
    });
  }

  /** Writes a whole source and closes; a process that ends without reading it is no error. */
  async feed(source: InputSource, signal: AbortSignal | undefined): Promise<void> {
    const options = signal === undefined ? {} : { signal };
    try {
      if (typeof source === "string" || source instanceof Uint8Array) await this.write(source, options);
      else for await (const chunk of source) await this.write(chunk, options);
      await this.end(options);
    } catch (error) {
      // The process closed its input or is gone: what it did not want is not missing.
      if (!isSandboxError(error, "process-ended") && !isSandboxError(error, "not-found")) throw error;
    }
  }

  async #send(part: { data: string } | { close: true }, options: { readonly signal?: AbortSignal }): Promise<void> {
    try {
      await this.#client.unary(`${processService}/WriteStdin`, { id: this.#id, ...part }, options);
    } catch (error) {
      // A conflict here has one cause: the process has ended or has closed its input.
      if (!isSandboxError(error, "conflict")) throw error;
      throw new SandboxError("process-ended", error.message, { cause: error, requestId: error.requestId });
    }
  }

  #inOrder(act: () => Promise<void>): Promise<void> {
    const done = this.#last.then(act);
    // A failed write is its caller's to handle; the next one is tried on its own.
    this.#last = done.catch(() => undefined);
    return done;
  }
}
