import { isSandboxError } from "../errors/sandbox-error.ts";
import type { DataPlane, PlaneRequest, PlaneResponse } from "./data-plane.ts";

/**
 * A way with a spare one, for a first way that may not be there at all. Only a connection that could not be made, before the
 * first way ever answered, leads to the spare one: nothing was sent then, and who answered once is only away for a moment.
 */
export class SparePlane implements DataPlane {
  readonly #first: DataPlane;
  readonly #openSpare: () => DataPlane;
  #spare: DataPlane | undefined;
  #hasAnswered = false;

  constructor(first: DataPlane, openSpare: () => DataPlane) {
    this.#first = first;
    this.#openSpare = openSpare;
  }

  async request(request: PlaneRequest): Promise<PlaneResponse> {
    if (this.#spare !== undefined) return this.#spare.request(request);
    try {
      const response = await this.#first.request(request);
      this.#hasAnswered = true;
      return response;
    } catch (error) {
      if (this.#hasAnswered || !isSandboxError(error, "unavailable") || !isUnsent(request)) throw error;
      this.#spare ??= this.#openSpare();
      return this.#spare.request(request);
    }
  }

  async close(): Promise<void> {
    await this.#first.close();
    await this.#spare?.close();
  }
}

/** A body that comes as it is read may have been read in part. */
function isUnsent({ body }: PlaneRequest): boolean {
  return body === undefined || typeof body === "string" || body instanceof Uint8Array;
}
