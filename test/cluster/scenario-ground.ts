import { randomBytes } from "node:crypto";
import { ignore, isReasonOf, type KubeObject, namespaces, type Resource } from "@agent-sandbox/api";
import type { Client } from "@agent-sandbox/kube";

/** Longer than the half minute after which the garbage collector of Kubernetes learns of kinds that were just installed. */
const patienceMs = 60_000;

/** A namespace of one scenario, and the words scenarios are written in. */
export class Ground implements AsyncDisposable {
  readonly namespace: string;
  readonly #client: Client;

  private constructor(client: Client, namespace: string) {
    this.#client = client;
    this.namespace = namespace;
  }

  /** Makes a fresh namespace. */
  static async open(client: Client): Promise<Ground> {
    const namespace = `scenario-${randomBytes(4).toString("hex")}`;
    await client.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
    return new Ground(client, namespace);
  }

  /** Creates in the scenario's namespace; waits for the ServiceAccount that Pods need. */
  async create<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T> {
    const placed = { ...object, metadata: { ...object.metadata, namespace: this.namespace } };
    return this.#eventually(`${resource.kind} ${object.metadata.name} made`, () =>
      this.#client.create(resource, placed).catch(waitForServiceAccount),
    );
  }

  /** Reads one object. */
  get<T extends KubeObject>(resource: Resource<T>, name: string): Promise<T> {
    return this.#client.get(resource, { namespace: this.namespace, name });
  }

  /** All objects of a kind. */
  async list<T extends KubeObject>(resource: Resource<T>): Promise<T[]> {
    return (await this.#client.list(resource, { namespace: this.namespace })).items;
  }

  /** A merge patch. */
  patch<T extends KubeObject>(resource: Resource<T>, name: string, body: object): Promise<T> {
    return this.#client.patch(resource, { namespace: this.namespace, name }, { type: "merge", body });
  }

  /** Deletes and does not wait. */
  remove<T extends KubeObject>(resource: Resource<T>, name: string): Promise<void> {
    return this.#client.delete(resource, { namespace: this.namespace, name });
  }

  /** The object as soon as it looks as wanted. */
  until<T extends KubeObject>(resource: Resource<T>, name: string, look: (object: T) => boolean): Promise<T> {
    return this.#eventually(`${resource.kind} ${name}: ${look.toString()}`, async () => {
      const object = await this.get(resource, name).catch(ignore("NotFound"));
      return object !== undefined && look(object) ? object : undefined;
    });
  }

  /** The list as soon as it looks as wanted. */
  untilList<T extends KubeObject>(resource: Resource<T>, look: (objects: T[]) => boolean): Promise<T[]> {
    return this.#eventually(`list of ${resource.kind}: ${look.toString()}`, async () => {
      const objects = await this.list(resource);
      return look(objects) ? objects : undefined;
    });
  }

  /** Resolves when the object is not there. */
  async untilGone<T extends KubeObject>(resource: Resource<T>, name: string): Promise<void> {
    await this.#eventually(`${resource.kind} ${name} gone`, async () =>
      (await this.get(resource, name).catch(ignore("NotFound"))) === undefined ? true : undefined,
    );
  }

  /** A time from now, as the API writes it. */
  inSeconds(seconds: number): string {
    return new Date(Date.now() + seconds * 1_000).toISOString().replace(/\.\d+Z/, "Z");
  }

  /** Asks again and again: two engines have only their API in common. */
  async #eventually<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
    const endMs = performance.now() + patienceMs;
    for (;;) {
      const found = await look();
      if (found !== undefined) return found;
      if (performance.now() > endMs) throw new Error(`not within ${patienceMs} ms: ${what}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client.delete(namespaces, { name: this.namespace }).catch(ignore("NotFound"));
  }
}

/** A namespace is made before its default ServiceAccount. */
function waitForServiceAccount(error: unknown): undefined {
  const isEarly = isReasonOf(error, "Forbidden") && /serviceaccount .* not found/i.test(String(error));
  if (!isEarly) throw error;
}
