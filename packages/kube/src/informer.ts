import { type KubeObject, keyOf, type Resource } from "@agent-sandbox/api";
import type { Client } from "./client.ts";
import type { Clock, Disposer } from "./clock.ts";
import { Indexer, type IndexFunction } from "./indexer.ts";
import { type ReflectorSink, runReflector } from "./reflector.ts";

/** Told of every change, synchronously and in order. A handler must not throw; it usually adds a key to a queue. */
export interface InformerHandler<T> {
  /** `initial`: the object was there at the first list, nothing happened to it. */
  onAdd?(object: T, context: { readonly initial: boolean }): void;
  onUpdate?(old: T, object: T): void;
  /** `last` is the final state, or with `stale` the last one seen before a gap in which the object went away. */
  onDelete?(last: T, context: { readonly stale: boolean }): void;
  /** A list took the place of everything, after a gap: what came and went in it was never told. */
  onReplace?(): void;
}

/** What to keep in memory. */
export interface InformerOptions<T extends KubeObject> {
  readonly client: Client;
  readonly resource: Resource<T>;
  /** Absent: all namespaces. */
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly clock: Clock;
  readonly random?: () => number;
  readonly indexers?: Readonly<Record<string, IndexFunction<T>>>;
  /** Strips what no handler and no index reads before an object is kept; may change and return its argument. */
  readonly transform?: (object: T) => T;
  /** Deep-freezes what is kept, so that a mutation throws; for tests and development. Default false. */
  readonly freeze?: boolean;
  /** Objects per page of a list; default 500. */
  readonly pageSize?: number;
  /** A failed list or watch; the informer tries again by itself. */
  readonly onError?: (error: unknown) => void;
}

/**
 * A resource in memory, kept up to date. Objects handed out are shared: never mutate them.
 *
 * Invariant: an update older than what is kept is dropped, so that a repeated event cannot turn time back.
 */
export class Informer<T extends KubeObject> {
  readonly #options: InformerOptions<T>;
  readonly #indexer: Indexer<T>;
  readonly #handlers = new Set<InformerHandler<T>>();
  readonly #synced = Promise.withResolvers<void>();
  #hasSynced = false;
  #resourceVersion = "";

  constructor(options: InformerOptions<T>) {
    this.#options = options;
    this.#indexer = new Indexer(options.indexers);
  }

  /** Whether the first list is in. */
  get hasSynced(): boolean {
    return this.#hasSynced;
  }

  /** The newest version seen, bookmarks not counted; empty before the first list. */
  get resourceVersion(): string {
    return this.#resourceVersion;
  }

  /** The number of objects. */
  get size(): number {
    return this.#indexer.size;
  }

  /** The object under `namespace/name` (or `name`). */
  get(key: string): T | undefined {
    return this.#indexer.get(key);
  }

  /** All objects, in no particular order. */
  list(): T[] {
    return [...this.#indexer.values()];
  }

  /** The objects that an index function gave `value`. */
  byIndex(name: string, value: string): T[] {
    return this.#indexer.byIndex(name, value);
  }

  /** How many objects an index function gave `value`. */
  countByIndex(name: string, value: string): number {
    return this.#indexer.countByIndex(name, value);
  }

  /** Adds a handler, and tells it of every object that is there. */
  addHandler(handler: InformerHandler<T>): Disposer {
    this.#handlers.add(handler);
    for (const object of this.#indexer.values()) handler.onAdd?.(object, { initial: true });
    return () => void this.#handlers.delete(handler);
  }

  /** Resolves after the first list; rejects with `signal.reason` when aborted before. */
  synced(signal: AbortSignal): Promise<void> {
    if (this.#hasSynced) return Promise.resolve();
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const onAbort = (): void => reject(signal.reason);
      signal.addEventListener("abort", onAbort, { once: true });
      void this.#synced.promise.then(() => {
        signal.removeEventListener("abort", onAbort);
        resolve();
      });
    });
  }

  /** Lists and watches until the signal aborts. Call it once. */
  run(signal: AbortSignal): Promise<void> {
    const { client, resource, namespace, labelSelector, fieldSelector, clock, random, pageSize, transform, onError } =
      this.#options;
    const sink: ReflectorSink<T> = {
      replace: (objects, version) => this.#replace(objects, version),
      apply: (object, change, version) => this.#apply(object, change, version),
    };
    return runReflector({
      client,
      resource,
      select: {
        ...(namespace !== undefined && { namespace }),
        ...(labelSelector !== undefined && { labelSelector }),
        ...(fieldSelector !== undefined && { fieldSelector }),
      },
      sink,
      ...(transform !== undefined && { transform }),
      clock,
      ...(random !== undefined && { random }),
      ...(pageSize !== undefined && { pageSize }),
      ...(onError !== undefined && { onError }),
      signal,
    });
  }

  #replace(objects: readonly T[], resourceVersion: string): void {
    const initial = !this.#hasSynced;
    const present = new Set<string>();
    for (const object of objects) {
      present.add(keyOf(object));
      this.#put(object, initial);
    }
    for (const key of this.#indexer.keys()) if (!present.has(key)) this.#remove(key, undefined);
    this.#resourceVersion = resourceVersion;
    if (initial) {
      this.#hasSynced = true;
      this.#synced.resolve();
    }
    for (const handler of this.#handlers) handler.onReplace?.();
  }

  #apply(object: T, change: "changed" | "gone", resourceVersion: string): void {
    if (change === "gone") this.#remove(keyOf(object), object);
    else this.#put(object, false);
    this.#resourceVersion = resourceVersion;
  }

  #put(incoming: T, initial: boolean): void {
    const key = keyOf(incoming);
    const old = this.#indexer.get(key);
    const oldVersion = old?.metadata.resourceVersion;
    // Equal versions are a replay or a relist: nothing happened.
    if (old !== undefined && compareVersions(incoming.metadata.resourceVersion, oldVersion) <= 0) return;
    const object = this.#keep(incoming);
    this.#indexer.set(key, object);
    // The same name with another uid is another object: its predecessor's end was missed.
    if (old !== undefined && old.metadata.uid !== object.metadata.uid) {
      for (const handler of this.#handlers) handler.onDelete?.(old, { stale: true });
      for (const handler of this.#handlers) handler.onAdd?.(object, { initial });
    } else if (old !== undefined) for (const handler of this.#handlers) handler.onUpdate?.(old, object);
    else for (const handler of this.#handlers) handler.onAdd?.(object, { initial });
  }

  #remove(key: string, last: T | undefined): void {
    const old = this.#indexer.get(key);
    if (old === undefined) return;
    // A repeated deletion of a predecessor says nothing about the object that has the name today.
    if (last !== undefined && compareVersions(last.metadata.resourceVersion, old.metadata.resourceVersion) < 0) return;
    this.#indexer.delete(key);
    const object = last === undefined ? old : this.#keep(last);
    for (const handler of this.#handlers) handler.onDelete?.(object, { stale: last === undefined });
  }

  #keep(object: T): T {
    return this.#options.freeze === true ? deepFreeze(object) : object;
  }
}

/** Since Kubernetes 1.35 versions are ordered as integers of any length; a version that is not one counts as newer. */
export function compareVersions(a: string | undefined, b: string | undefined): number {
  if (a === b) return 0;
  if (a === undefined || b === undefined || !/^\d+$/.test(a) || !/^\d+$/.test(b)) return 1;
  if (a.length !== b.length) return a.length - b.length;
  return a < b ? -1 : 1;
}

function deepFreeze<V>(value: V): V {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}
