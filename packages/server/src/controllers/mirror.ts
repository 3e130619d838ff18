import type { KubeObject } from "@agent-sandbox/api";
import { keyOf } from "@agent-sandbox/api";
import { compareVersions, Indexer, type IndexFunction, type Informer, type InformerHandler } from "@agent-sandbox/kube";

interface Written<T> {
  readonly object: T;
  /** `deleting`: on its way out although its version did not change; `gone`: the server no longer has it. */
  readonly end: "none" | "deleting" | "gone";
}

/**
 * An informer that also shows what this process wrote and the watch has not brought back yet.
 * Bound: one entry per write in flight; an entry goes when the watch has passed its version.
 *
 * Invariant: a read never shows an older version than this process's last write of that object.
 */
export class Mirror<T extends KubeObject> {
  readonly informer: Informer<T>;
  readonly #written: Indexer<Written<T>>;
  readonly #handlers: InformerHandler<T>[] = [];

  constructor(informer: Informer<T>, indexers: Readonly<Record<string, IndexFunction<T>>> = {}) {
    this.informer = informer;
    const ofObject = (values: IndexFunction<T>): IndexFunction<Written<T>> => {
      return ({ object, end }) => (end === "gone" ? [] : values(object));
    };
    this.#written = new Indexer(
      Object.fromEntries(Object.entries(indexers).map(([name, values]) => [name, ofObject(values)])),
    );
    // Registered before any controller's handler, so that these read the version that the watch brought.
    const settle = (object: T): void => void (this.#written.size > 0 && this.#isHidden(object));
    const onReplace = (): void => this.#reportLost();
    informer.addHandler({ onAdd: settle, onUpdate: (_old, object) => settle(object), onReplace });
  }

  /** Like the informer's; `onDelete` is also called for what this process made and the watch never showed. */
  addHandler(handler: InformerHandler<T>): void {
    this.#handlers.push(handler);
    this.informer.addHandler(handler);
  }

  /** The newest known state under `namespace/name`. */
  get(key: string): T | undefined {
    const cached = this.informer.get(key);
    const written = this.#written.get(key);
    if (written === undefined) return cached;
    if (!this.#isPassed(written, cached)) return written.end === "gone" ? undefined : written.object;
    this.#written.delete(key);
    return cached;
  }

  /** Like the informer's index, with own writes applied. */
  byIndex(name: string, value: string): T[] {
    const cached = this.informer.byIndex(name, value);
    if (this.#written.size === 0) return cached;
    const found = cached.filter((object) => !this.#isHidden(object));
    for (const written of this.#written.byIndex(name, value)) {
      const key = keyOf(written.object);
      if (this.#isPassed(written, this.informer.get(key))) this.#written.delete(key);
      else found.push(written.object);
    }
    return found;
  }

  /** Whether a newer version than the watch shows was written by this process; `byIndex` then takes that one. */
  #isHidden(cached: T): boolean {
    const key = keyOf(cached);
    const written = this.#written.get(key);
    if (written === undefined) return false;
    if (!this.#isPassed(written, cached)) return true;
    this.#written.delete(key);
    return false;
  }

  /** Remembers the server's answer to a create, update or patch. */
  wrote(object: T): T {
    const key = keyOf(object);
    const cached = this.informer.get(key);
    const newer =
      cached === undefined || compareVersions(object.metadata.resourceVersion, cached.metadata.resourceVersion) > 0;
    if (newer) this.#written.set(key, { object, end: "none" });
    return object;
  }

  /** Remembers that a delete of this object was accepted. */
  deleted(object: T, deletionTimestamp: string): void {
    const marked = { ...object, metadata: { ...object.metadata, deletionTimestamp } };
    this.#written.set(keyOf(object), { object: marked, end: "deleting" });
  }

  /** The server says this very object no longer exists, though the cache still shows it. */
  gone(object: T): void {
    this.#written.set(keyOf(object), { object, end: "gone" });
  }

  /** Our view of the object proved wrong: back to what the watch says. */
  forget(key: string): void {
    this.#written.delete(key);
  }

  /** An object that this process made and another deleted while the watch had a gap has no events at all: handlers get its deletion from here. */
  #reportLost(): void {
    for (const written of this.#written.values()) {
      const key = keyOf(written.object);
      if (this.informer.get(key) !== undefined || !this.#isPassed(written, undefined)) continue;
      this.#written.delete(key);
      for (const handler of this.#handlers) handler.onDelete?.(written.object, { stale: true });
    }
  }

  #isPassed({ object, end }: Written<T>, cached: T | undefined): boolean {
    const version = object.metadata.resourceVersion;
    // What the watch has not shown yet may be on its way out all the same: only its passing says that it is gone.
    if (cached === undefined) return compareVersions(this.informer.resourceVersion, version) >= 0;
    if (cached.metadata.uid !== object.metadata.uid)
      return compareVersions(cached.metadata.resourceVersion, version) >= 0;
    const order = compareVersions(cached.metadata.resourceVersion, version);
    return end === "none" ? order >= 0 : order > 0;
  }
}
