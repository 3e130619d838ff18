import { SandboxError } from "../sandbox-error.ts";
import { type DataPlane, daemonPort, type PlaneRequest, type PlaneResponse } from "./data-plane.ts";

/** A way that is blocked drops packets without a word; one that is open answers within a round trip. */
const probeTimeoutMs = 1_500;

/** Tries ways in order, once, with a harmless question, and stays with the first that answers. The last is taken unasked. */
export class FallbackPlane implements DataPlane {
  readonly #ways: readonly (() => DataPlane)[];
  #chosen: Promise<DataPlane> | undefined;

  constructor(ways: readonly (() => DataPlane)[]) {
    this.#ways = ways;
  }

  async request(request: PlaneRequest): Promise<PlaneResponse> {
    this.#chosen ??= this.#choose();
    return (await this.#chosen).request(request);
  }

  async close(): Promise<void> {
    await (await this.#chosen)?.close();
  }

  async #choose(): Promise<DataPlane> {
    for (const way of this.#ways.slice(0, -1)) {
      const plane = way();
      if (await answers(plane)) return plane;
      await plane.close();
    }
    const last = this.#ways.at(-1);
    if (last === undefined) throw new SandboxError("internal", "bug: no way to the sandbox");
    return last();
  }
}

async function answers(plane: DataPlane): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(probeTimeoutMs);
    const { body } = await plane.request({ method: "GET", port: daemonPort, path: "/v1/health", signal });
    for await (const _ of body);
    return true;
  } catch {
    return false;
  }
}
