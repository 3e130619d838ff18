import type { KubeObject, Resource } from "@agent-sandbox/api";

/** Names one object of a resource; cluster-scoped objects have no namespace. */
export interface ObjectKey {
  readonly namespace?: string;
  readonly name: string;
}

/** What authentication, authorisation and admission may read; given by the API server over its store, without any check of rights. */
export interface ObjectReader {
  /** The latest object in the resource's own version, or undefined. The caller does not change it. */
  get<T extends KubeObject>(resource: Resource<T>, key: ObjectKey): Promise<T | undefined>;
  /** All latest objects of a namespace, or of all namespaces. */
  list<T extends KubeObject>(resource: Resource<T>, namespace?: string): Promise<readonly T[]>;
  /**
   * Calls `onChange` for each object there is and then for each change, in order. Resolves when the present objects have been
   * delivered. A change is delivered before the write that made it is answered, so that the next request is judged by the new roles.
   */
  subscribe<T extends KubeObject>(
    resource: Resource<T>,
    onChange: (change: ObjectChange<T>) => void,
  ): Promise<Disposable>;
}

/** One object as it is after a change, or as it was last before its deletion. */
export interface ObjectChange<T extends KubeObject> {
  readonly object: T;
  readonly deleted: boolean;
}

/** The only write that admission makes: quota usage, with `metadata.resourceVersion` as precondition. Throws ApiError `Conflict`. */
export interface StatusWriter {
  updateStatus<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T>;
}
