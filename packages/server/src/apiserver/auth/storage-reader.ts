import type { KubeObject, Resource } from "@agent-sandbox/api";
import { modified, notFound } from "@agent-sandbox/api";
import type { Registry } from "../registry/registry.ts";
import type { ResourceDefinition } from "../registry/resource-definition.ts";
import { listPrefix } from "../storage/object-key.ts";
import { isStoreConflict, type ObjectStorage } from "../storage/object-storage.ts";
import type { ObjectChange, ObjectKey, ObjectReader, StatusWriter } from "./object-reader.ts";

/** The parts of an API server that rules read from. */
export interface ReadableParts {
  readonly storage: ObjectStorage;
  readonly registry: Registry;
}

/** Reads straight from the store. It is attached after the server is made, because the server is made with the rules that read. */
export class StorageReader implements ObjectReader, StatusWriter {
  #parts: ReadableParts | undefined;

  /** Gives it the server's parts; before that nothing can be read. */
  attach(parts: ReadableParts): void {
    this.#parts = parts;
  }

  get #server(): ReadableParts {
    if (this.#parts === undefined) throw new Error("the reader is not attached to a server yet");
    return this.#parts;
  }

  async get<T extends KubeObject>(resource: Resource<T>, key: ObjectKey): Promise<T | undefined> {
    const definition = this.#definitionOf(resource);
    const stored = definition === undefined ? undefined : this.#server.storage.get(definition, key);
    if (definition === undefined || stored === undefined) return undefined;
    return (await this.#inVersion(definition, resource, stored.object)) as T;
  }

  async list<T extends KubeObject>(resource: Resource<T>, namespace?: string): Promise<readonly T[]> {
    const definition = this.#definitionOf(resource);
    if (definition === undefined) return [];
    const { storage } = this.#server;
    const { rows } = storage.store.list({ prefix: listPrefix(definition, namespace) });
    return Promise.all(
      rows.map(async (row) => (await this.#inVersion(definition, resource, storage.read(definition, row))) as T),
    );
  }

  /** A kind that is defined later is followed from its first write. Objects arrive in their storage version. */
  async subscribe<T extends KubeObject>(
    resource: Resource<T>,
    onChange: (change: ObjectChange<T>) => void,
  ): Promise<Disposable> {
    const { storage } = this.#server;
    const subscription = storage.onWrite((definition, row) => {
      if (definition.group !== resource.group || definition.resource !== resource.resource) return;
      onChange({ object: storage.read(definition, row) as T, deleted: row.deleted });
    });
    for (const object of await this.list(resource)) onChange({ object, deleted: false });
    return subscription;
  }

  async updateStatus<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T> {
    const definition = this.#definitionOf(resource);
    const { namespace, name, resourceVersion } = object.metadata;
    const subject = { group: resource.group, resource: resource.resource, name };
    const stored = definition === undefined ? undefined : this.#server.storage.get(definition, { namespace, name });
    if (definition === undefined || stored === undefined) throw notFound(subject);
    if (resourceVersion !== stored.object.metadata.resourceVersion) throw modified(subject);
    try {
      const write = { object, expectedRevision: stored.row.revision };
      const row = await this.#server.storage.write(definition, write);
      return this.#server.storage.read(definition, row) as T;
    } catch (error) {
      if (isStoreConflict(error)) throw modified(subject);
      throw error;
    }
  }

  #definitionOf({ group, resource }: Resource<KubeObject>): ResourceDefinition | undefined {
    return this.#server.registry.find(group, resource);
  }

  async #inVersion(
    definition: ResourceDefinition,
    { version }: Resource<KubeObject>,
    object: KubeObject,
  ): Promise<unknown> {
    if (definition.storageVersion === version) return object;
    return this.#server.storage.codec.convert(definition, object, version);
  }
}
