import type { ApiCall, Json } from "../../conformance/api-call.ts";
import { patchTypes } from "../../conformance/api-call.ts";
import { at, configMap, inNamespace, sandbox } from "../../conformance/objects.ts";

/** The kinds that are written, by the names that watchers use. */
export const kinds = ["configmaps", "sandboxes"] as const;
export type WatchedKind = (typeof kinds)[number];

/** Live objects of a lane at most: one, so that it lives short and a list is shorter than what passes before a cut. */
const liveMax = 1;
/** Ballast of every object: a cut then falls into the middle of an event more often than between two. */
const ballast = "x".repeat(2_000);

interface Written {
  readonly name: string;
  readonly versions: number[];
  isDeleted: boolean;
}

/** What a writer writes. */
export interface WriterOptions {
  readonly kind: WatchedKind;
  readonly namespace: string;
  /** Of the names of its objects; another for every writer. */
  readonly prefix: string;
  readonly random: () => number;
}

/** Creates, changes and deletes objects of one kind one after the other, and remembers what was acknowledged. */
export class Writer {
  /** By uid. */
  readonly written = new Map<string, Written>();
  readonly #api: ApiCall;
  readonly #kind: WatchedKind;
  readonly #path: string;
  readonly #prefix: string;
  readonly #random: () => number;
  readonly #waiting: Array<() => void> = [];
  #count = 0;

  constructor(api: ApiCall, options: WriterOptions) {
    const { kind, namespace, prefix, random } = options;
    this.#api = api;
    this.#prefix = prefix;
    this.#kind = kind;
    this.#path = inNamespace(kind === "configmaps" ? at.configMaps : at.sandboxes, namespace);
    this.#random = random;
  }

  /** Writes until told to stop. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#writeOne();
      for (const resolve of this.#waiting.splice(0)) resolve();
    }
  }

  /** Resolves after the next write that is acknowledged; only while it runs. */
  next(): Promise<void> {
    return new Promise((resolve) => void this.#waiting.push(resolve));
  }

  /** One create, update or delete, whichever chance wants. */
  async #writeOne(): Promise<void> {
    const live = [...this.written].filter(([, { isDeleted }]) => !isDeleted);
    const [uid, object] = live[Math.floor(this.#random() * live.length)] ?? ["", undefined];
    const chance = this.#random();
    if (object === undefined || (live.length < liveMax && chance < 0.3))
      return this.create(`${this.#prefix}-${this.#count}`);
    if (chance > 0.85) return this.#delete(uid, object);
    const body = { metadata: { annotations: { step: String(this.#count++) } } };
    const changed = await this.#call("PATCH", `${this.#path}/${object.name}`, body, patchTypes.merge);
    object.versions.push(Number(changed.metadata.resourceVersion));
  }

  /** Makes one object. */
  async create(name: string): Promise<void> {
    this.#count += 1;
    const metadata = { annotations: { ballast } };
    const body = this.#kind === "configmaps" ? configMap(name, {}, metadata) : sandbox(name, {}, metadata);
    const { metadata: made } = await this.#call("POST", this.#path, body);
    this.written.set(made.uid, { name, versions: [Number(made.resourceVersion)], isDeleted: false });
  }

  async #delete(uid: string, object: Written): Promise<void> {
    await this.#call("DELETE", `${this.#path}/${object.name}`, { preconditions: { uid } });
    object.isDeleted = true;
  }

  /** What the server lists at the end: versions by uid. */
  async listed(): Promise<Record<string, string>> {
    const { items } = await this.#call("GET", this.#path);
    return Object.fromEntries(items.map(({ metadata }: Json) => [metadata.uid, metadata.resourceVersion]));
  }

  async #call(method: string, path: string, body?: Json, type?: string): Promise<Json> {
    const answer = await this.#api.call(method, path, {
      ...(body !== undefined && { body }),
      ...(type !== undefined && { type }),
    });
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.body;
  }
}
