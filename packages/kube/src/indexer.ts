/** Computes the values under which an object is found in one index. */
export type IndexFunction<T> = (object: T) => readonly string[];

/**
 * Objects by key, and by the values that index functions give them.
 * Bound: one entry per object watched.
 */
export class Indexer<T> {
  readonly #functions: ReadonlyMap<string, IndexFunction<T>>;
  readonly #objects = new Map<string, T>();
  readonly #indexes = new Map<string, Map<string, Set<string>>>();

  constructor(functions: Readonly<Record<string, IndexFunction<T>>> = {}) {
    this.#functions = new Map(Object.entries(functions));
    for (const name of this.#functions.keys()) this.#indexes.set(name, new Map());
  }

  /** The number of objects. */
  get size(): number {
    return this.#objects.size;
  }

  /** The object under a key. */
  get(key: string): T | undefined {
    return this.#objects.get(key);
  }

  /** All keys. */
  keys(): IterableIterator<string> {
    return this.#objects.keys();
  }

  /** All objects, in no particular order. */
  values(): IterableIterator<T> {
    return this.#objects.values();
  }

  /** How many objects the index function `name` gave `value`, without collecting them. */
  countByIndex(name: string, value: string): number {
    const index = this.#indexes.get(name);
    if (index === undefined) throw new Error(`bug: no index named ${name}`);
    return index.get(value)?.size ?? 0;
  }

  /** The objects that the index function `name` gave `value`. An unknown index is a bug and throws. */
  byIndex(name: string, value: string): T[] {
    const index = this.#indexes.get(name);
    if (index === undefined) throw new Error(`bug: no index named ${name}`);
    const found: T[] = [];
    for (const key of index.get(value) ?? []) {
      const object = this.#objects.get(key);
      if (object !== undefined) found.push(object);
    }
    return found;
  }

  /** Adds or replaces; returns what was there. */
  set(key: string, object: T): T | undefined {
    const old = this.delete(key);
    this.#objects.set(key, object);
    for (const [name, indexOf] of this.#functions) {
      const index = this.#indexes.get(name) as Map<string, Set<string>>;
      for (const value of indexOf(object)) {
        const keys = index.get(value);
        if (keys === undefined) index.set(value, new Set([key]));
        else keys.add(key);
      }
    }
    return old;
  }

  /** Removes; returns what was there. */
  delete(key: string): T | undefined {
    const old = this.#objects.get(key);
    if (old === undefined) return undefined;
    this.#objects.delete(key);
    for (const [name, indexOf] of this.#functions) {
      const index = this.#indexes.get(name) as Map<string, Set<string>>;
      for (const value of indexOf(old)) {
        const keys = index.get(value);
        if (keys?.delete(key) && keys.size === 0) index.delete(value);
      }
    }
    return old;
  }
}
