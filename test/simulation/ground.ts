import type { KubeObject, Resource } from "@agent-sandbox/api";
import { FakeClock, seededRandom } from "@agent-sandbox/kube";
import { ApiServer } from "../../packages/server/src/apiserver/api-server.ts";
import { ownCrds } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { openStore } from "../../packages/server/src/store/sqlite-store.ts";
import type { Row, Store } from "../../packages/server/src/store/store.ts";
import { StoreError } from "../../packages/server/src/store/store-error.ts";
import { silentLogger } from "../../packages/server/src/telemetry/logger.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Who everybody is: rights are another suite's matter. */
export const everybody = { username: "system:admin", groups: ["system:masters"] };

/** A real API server on a store in memory; many seeds use one after another, because its schemas take longer than a seed. */
export class Ground implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly store: Store;
  readonly api: ApiServer;
  /** Onlookers read the same rows again and again. */
  readonly #parsed = new WeakMap<Row, KubeObject>();
  #random: () => number = seededRandom(0);

  private constructor() {
    // Waits with jitter end between two milliseconds; a server's clock tells whole ones.
    const clock = { nowMs: () => Math.floor(this.clock.nowMs()), setTimer: this.clock.setTimer.bind(this.clock) };
    this.store = openStore({ path: ":memory:", clock });
    this.api = new ApiServer({
      store: this.store,
      clock,
      logger: silentLogger(),
      authorizer: { authorize: () => ({ verdict: "allow", reason: "simulation" }) },
      ids: { uuid: () => this.#uuid(), nameSuffix: () => this.#hex(5) },
    });
  }

  /** Opens a ground with our kinds installed. */
  static async open(): Promise<Ground> {
    const ground = new Ground();
    await ground.api.installCrds(ownCrds());
    return ground;
  }

  /** Removes every object but the definitions, and makes the names and times that follow depend on the seed alone. */
  async clear(seed: number): Promise<void> {
    this.#random = seededRandom(seed);
    // Where in a second a world begins decides what is rounded to which second.
    await this.clock.advance(1_000 - (this.clock.nowMs() % 1_000), { quietTurns: 1 });
    for (;;) {
      const { rows, more } = this.store.list({ prefix: "/registry/", limit: 500 });
      const left = rows.filter(({ key }) => !key.startsWith("/registry/apiextensions.k8s.io/"));
      await Promise.all(
        left.map(({ key, value, revision }) =>
          this.store.append({ key, value, expectedRevision: revision, delete: true }),
        ),
      );
      if (!more || left.length === 0) return;
    }
  }

  /** All objects of a kind as they are stored at this very moment; for onlookers, who must not disturb and change nothing. */
  read<T extends KubeObject>({ group, resource }: Resource<T>): T[] {
    const prefix = `/registry/${group === "" ? "core" : group}/${resource}/`;
    return this.store.list({ prefix }).rows.map((row) => this.#parse<T>(row));
  }

  /** Changes what is stored past the API server, as a kubelet's status does past every controller; false: it changed meanwhile. */
  async write<T extends KubeObject>(
    { group, resource }: Resource<T>,
    object: T,
    change: Partial<T> | "delete",
  ): Promise<boolean> {
    const { namespace = "", name, resourceVersion: _, ...metadata } = object.metadata;
    const key = `/registry/${group === "" ? "core" : group}/${resource}/${namespace}/${name}`;
    const changed = { ...object, metadata: { ...metadata, name, namespace }, ...(change === "delete" ? {} : change) };
    const value = encoder.encode(JSON.stringify(changed));
    const expectedRevision = Number(object.metadata.resourceVersion);
    try {
      await this.store.append({ key, value, expectedRevision, ...(change === "delete" ? { delete: true } : {}) });
      return true;
    } catch (error) {
      if (error instanceof StoreError && error.code === "conflict") return false;
      throw error;
    }
  }

  #parse<T extends KubeObject>(row: Row): T {
    const known = this.#parsed.get(row);
    if (known !== undefined) return known as T;
    const object = JSON.parse(decoder.decode(row.value)) as T;
    object.metadata.resourceVersion = String(row.revision);
    this.#parsed.set(row, object);
    return object;
  }

  /** How far the store is. */
  revision(): number {
    return this.store.list({ prefix: "/registry/apiextensions.k8s.io/", limit: 1 }).revision;
  }

  #uuid(): string {
    return `${this.#hex(8)}-${this.#hex(4)}-4${this.#hex(3)}-8${this.#hex(3)}-${this.#hex(12)}`;
  }

  #hex(length: number): string {
    let text = "";
    while (text.length < length) text += Math.floor(this.#random() * 16).toString(16);
    return text;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.api.close();
    await this.store.close();
  }
}
