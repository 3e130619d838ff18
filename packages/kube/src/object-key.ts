import type { ObjectKey } from "./client.ts";

/** The opposite of `keyOf`: takes `namespace/name`, or `name` where there is no namespace. */
export function parseKey(key: string): ObjectKey {
  const slash = key.indexOf("/");
  return slash < 0 ? { name: key } : { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}
