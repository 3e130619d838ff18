import type { ResourceDefinition } from "../registry/resource-definition.ts";

/** The store prefix of all objects of a kind, or of those in one namespace; ends with a slash. */
export function listPrefix(definition: ResourceDefinition, namespace?: string): string {
  const { group, resource } = definition.storedAs ?? definition;
  const kindPrefix = `/registry/${group === "" ? "core" : group}/${resource}/`;
  return namespace === undefined || namespace === "" ? kindPrefix : `${kindPrefix}${namespace}/`;
}

/** The store key of one object; the namespace of a cluster-scoped kind is ignored. */
export function objectKey(definition: ResourceDefinition, { namespace, name }: ObjectName): string {
  return listPrefix(definition, definition.namespaced ? namespace : undefined) + name;
}

/** Names one object of a kind. */
export interface ObjectName {
  readonly namespace?: string | undefined;
  readonly name: string;
}
