import type { DataPlane, PlaneRequest, PlaneResponse } from "./data-plane.ts";

/** A way whose code is loaded by its first request: most commands that open an engine talk to no sandbox. */
export class LazyPlane implements DataPlane {
  readonly #load: () => Promise<DataPlane>;
  #plane: Promise<DataPlane> | undefined;

  constructor(load: () => Promise<DataPlane>) {
    this.#load = load;
  }

  async request(request: PlaneRequest): Promise<PlaneResponse> {
    this.#plane ??= this.#load();
    return (await this.#plane).request(request);
  }

  async close(): Promise<void> {
    await (await this.#plane)?.close();
  }
}
