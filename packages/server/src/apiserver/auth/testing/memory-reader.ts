import type { KubeObject, Resource } from "@agent-sandbox/api";
import type { ObjectChange, ObjectKey, ObjectReader, StatusWriter } from "../object-reader.ts";

/** Objects in a map, for tests of rules that read; the API server's own reader is used where a store is at hand. */
export class MemoryReader implements ObjectReader, StatusWriter {
  readonly #objects = new Map<string, KubeObject>();
  readonly #handlers = new Map<string, Set<(change: ObjectChange<KubeObject>) => void>>();

  /** Stores objects, replacing those of the same name. */
  put<T extends KubeObject>(resource: Resource<T>, ...objects: readonly T[]): this {
    for (const object of objects) {
      this.#objects.set(keyOf(resource, object.metadata), object);
      for (const handler of this.#handlers.get(resource.resource) ?? []) handler({ object, deleted: false });
    }
    return this;
  }

  /** Forgets an object. */
  remove<T extends KubeObject>(resource: Resource<T>, key: ObjectKey): void {
    const object = this.#objects.get(keyOf(resource, key));
    if (object === undefined) return;
    this.#objects.delete(keyOf(resource, key));
    for (const handler of this.#handlers.get(resource.resource) ?? []) handler({ object, deleted: true });
  }

  async get<T extends KubeObject>(resource: Resource<T>, key: ObjectKey): Promise<T | undefined> {
    return this.#objects.get(keyOf(resource, key)) as T | undefined;
  }

  async list<T extends KubeObject>(resource: Resource<T>, namespace?: string): Promise<readonly T[]> {
    const prefix = namespace === undefined ? `${resource.resource}/` : `${resource.resource}/${namespace}/`;
    return [...this.#objects].filter(([key]) => key.startsWith(prefix)).map(([, object]) => object as T);
  }

  async subscribe<T extends KubeObject>(
    resource: Resource<T>,
    onChange: (change: ObjectChange<T>) => void,
  ): Promise<Disposable> {
    for (const object of await this.list(resource)) onChange({ object, deleted: false });
    const handlers = this.#handlers.get(resource.resource) ?? new Set();
    this.#handlers.set(resource.resource, handlers);
    handlers.add(onChange as (change: ObjectChange<KubeObject>) => void);
    return { [Symbol.dispose]: () => handlers.delete(onChange as (change: ObjectChange<KubeObject>) => void) };
  }

  async updateStatus<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T> {
    this.put(resource, object);
    return object;
  }
}

function keyOf(resource: Resource<KubeObject>, { namespace = "", name }: { namespace?: string; name: string }): string {
  return `${resource.resource}/${resource.namespaced ? namespace : ""}/${name}`;
}
