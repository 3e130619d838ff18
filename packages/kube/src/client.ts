import type { KubeList, KubeObject, Resource, WatchEvent } from "@agent-sandbox/api";
import type { RequestPriority, Transport } from "./transport.ts";

/** Names one object; `namespace` is required for namespaced resources. */
export interface ObjectKey {
  readonly namespace?: string;
  readonly name: string;
}

/** Every call can be aborted, and can say what it is for. */
export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Default: that of the client, see `Client.at`. */
  readonly priority?: RequestPriority;
}

/** Options of `get`. */
export interface GetOptions extends CallOptions {
  readonly resourceVersion?: string;
  /** For example `status` or `scale`. */
  readonly subresource?: string;
}

/** What to select; shared by list, watch and deleteCollection. */
export interface SelectOptions extends CallOptions {
  /** Absent: all namespaces. */
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}

/** Options of `list`. */
export interface ListOptions extends SelectOptions {
  readonly limit?: number;
  readonly continue?: string;
  readonly resourceVersion?: string;
  readonly resourceVersionMatch?: "Exact" | "NotOlderThan";
}

/** Options of `watch`. */
export interface WatchOptions extends SelectOptions {
  /** Events after this version; absent: synthetic ADDED events of what is there first. */
  readonly resourceVersion?: string;
  readonly allowWatchBookmarks?: boolean;
  /** Streams the present state first and marks its end with a bookmark; the server must support it. */
  readonly sendInitialEvents?: boolean;
  /** The server ends the watch after this long. */
  readonly timeoutSeconds?: number;
}

/** Options of every write. */
export interface WriteOptions extends CallOptions {
  readonly fieldManager?: string;
  readonly fieldValidation?: "Ignore" | "Warn" | "Strict";
  readonly dryRun?: boolean;
  readonly subresource?: string;
}

/** A change of an object, in one of the four media types of Kubernetes. */
export interface Patch {
  readonly type: "json" | "merge" | "strategic" | "apply";
  readonly body: unknown;
}

/** Options of `patch`. */
export interface PatchOptions extends WriteOptions {
  /** With type `apply`: take fields that another manager owns. */
  readonly force?: boolean;
}

/** Options of `delete`. */
export interface DeleteOptions extends CallOptions {
  /** Precondition: only this very object. */
  readonly uid?: string;
  /** Precondition: only this version. */
  readonly resourceVersion?: string;
  readonly propagationPolicy?: "Background" | "Foreground" | "Orphan";
  readonly gracePeriodSeconds?: number;
  readonly dryRun?: boolean;
}

/** Options of `deleteCollection`. */
export interface DeleteCollectionOptions extends SelectOptions {
  readonly propagationPolicy?: "Background" | "Foreground" | "Orphan";
  readonly gracePeriodSeconds?: number;
}

/** The Kubernetes API, typed by resource. Every method rejects with an `ApiError`, or with the signal's reason. */
export interface Client {
  readonly transport: Transport;
  /** The same client, whose calls have this priority unless they say another. Watches are always of priority `stream`. */
  at(priority: RequestPriority): Client;
  get<T extends KubeObject>(resource: Resource<T>, key: ObjectKey, options?: GetOptions): Promise<T>;
  list<T extends KubeObject>(resource: Resource<T>, options?: ListOptions): Promise<KubeList<T>>;
  /** The namespace is the object's own. With `subresource` (for example `token`, `eviction`, `binding`) it posts to it. */
  create<T extends KubeObject>(resource: Resource<T>, object: T, options?: WriteOptions): Promise<T>;
  /** Replaces the object; its `resourceVersion`, where set, is a precondition. */
  update<T extends KubeObject>(resource: Resource<T>, object: T, options?: WriteOptions): Promise<T>;
  patch<T extends KubeObject>(resource: Resource<T>, key: ObjectKey, patch: Patch, options?: PatchOptions): Promise<T>;
  delete<T extends KubeObject>(resource: Resource<T>, key: ObjectKey, options?: DeleteOptions): Promise<void>;
  deleteCollection<T extends KubeObject>(resource: Resource<T>, options?: DeleteCollectionOptions): Promise<void>;
  /** Ends when the server ends it; an `ERROR` event is thrown as the `ApiError` it carries. */
  watch<T extends KubeObject>(resource: Resource<T>, options?: WatchOptions): AsyncIterable<WatchEvent<T>>;
  /** Any path, JSON in and out, for what has no resource type: reviews, discovery, `/version`. */
  raw<T = unknown>(request: RawRequest, options?: CallOptions): Promise<T>;
}

/** A request outside the typed surface. */
export interface RawRequest {
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  readonly contentType?: string;
}
