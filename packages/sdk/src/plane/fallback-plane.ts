import { SandboxError } from "../errors/sandbox-error.ts";
import { type DataPlane, daemonPort, type PlaneRequest, type PlaneResponse } from "./data-plane.ts";

/** One way that may be open or not. */
export interface Way {
  readonly open: () => DataPlane;
  /** How long it may take to answer a harmless question. */
  readonly probeTimeoutMs: number;
}

/** What a fallback plane is made of. */
export interface FallbackOptions {
  /** Resolves when the sandbox is there to be asked; what keeps it from being so is the caller's error. */
  readonly ready: (signal: AbortSignal | undefined) => Promise<unknown>;
  readonly ways: readonly Way[];
  /** Taken unasked when no other is open. */
  readonly last: () => DataPlane;
}

/** Tries ways in order, once, with a harmless question, and stays with the first that answers. */
export class FallbackPlane implements DataPlane {
  readonly #options: FallbackOptions;
  #chosen: Promise<DataPlane> | undefined;

  constructor(options: FallbackOptions) {
    this.#options = options;
  }

  async request(request: PlaneRequest): Promise<PlaneResponse> {
    this.#chosen ??= this.#choose(request.signal).catch((error: unknown) => {
      // The next request may find the sandbox there.
      this.#chosen = undefined;
      throw error;
    });
    return (await this.#chosen).request(request);
  }

  async close(): Promise<void> {
    const chosen = await this.#chosen?.catch(() => undefined);
    await chosen?.close();
  }

  async #choose(signal: AbortSignal | undefined): Promise<DataPlane> {
    const { ready, ways, last } = this.#options;
    await ready(signal);
    for (const { open, probeTimeoutMs } of ways) {
      const plane = open();
      if (await answers(plane, probeTimeoutMs)) return plane;
      await plane.close();
    }
    return last();
  }
}

async function answers(plane: DataPlane, timeoutMs: number): Promise<boolean> {
  const over = new AbortController();
  const timer = setTimeout(() => over.abort(new SandboxError("request-timeout", "no answer")), timeoutMs);
  try {
    const request = { method: "GET", port: daemonPort, path: "/v1/health", signal: over.signal };
    const { body } = await plane.request(request);
    for await (const _ of body);
    return true;
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
  }
}
