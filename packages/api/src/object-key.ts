import type { ObjectMeta } from "./meta.ts";

/** `namespace/name`, or the bare name of a cluster-scoped object: the key of queues, caches and indexes. */
export function keyOf(object: { readonly metadata: ObjectMeta }): string {
  return namespacedKey(object.metadata.namespace, object.metadata.name);
}

/** The key of the object with that name; `keyOf` where the object itself is not at hand. */
export function namespacedKey(namespace: string | undefined, name: string): string {
  return namespace === undefined || namespace === "" ? name : `${namespace}/${name}`;
}

/** The opposite of `keyOf`. */
export function parseKey(key: string): { namespace?: string; name: string } {
  const slash = key.indexOf("/");
  return slash < 0 ? { name: key } : { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}
