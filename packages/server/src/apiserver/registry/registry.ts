import type { KubeObject } from "@agent-sandbox/api";
import type { VirtualResource } from "../request/virtual-resource.ts";
import type { ResourceDefinition, VersionDefinition } from "./resource-definition.ts";
import { findVersion } from "./resource-definition.ts";

/** A kind and one of its versions. */
export interface ServedResource {
  readonly definition: ResourceDefinition;
  readonly version: VersionDefinition;
}

/** The kinds served at this moment: built-in ones, installed ones, and reviews that are answered but never stored. */
export class Registry {
  readonly #definitions = new Map<string, ResourceDefinition>();
  readonly #virtual = new Map<string, VirtualResource>();
  /** Grows with every change; discovery and OpenAPI documents are cached by it. */
  generation = 0;

  /** Adds or replaces a kind. */
  put(definition: ResourceDefinition): void {
    this.#definitions.set(resourceKey(definition), definition);
    this.generation++;
  }

  /** Removes a kind. */
  remove(group: string, resource: string): void {
    if (this.#definitions.delete(resourceKey({ group, resource }))) this.generation++;
  }

  /** Adds a kind that is answered by a function. */
  putVirtual(resource: VirtualResource): void {
    this.#virtual.set(`${resourceKey(resource)}/${resource.version}`, resource);
    this.generation++;
  }

  /** The stored kind, whatever its versions. */
  find(group: string, resource: string): ResourceDefinition | undefined {
    return this.#definitions.get(resourceKey({ group, resource }));
  }

  /** The stored kind in a served version. */
  findServed({ group, version, resource }: ResourceName): ServedResource | undefined {
    const definition = this.find(group, resource);
    const found = definition === undefined ? undefined : findVersion(definition, version);
    if (definition === undefined || found === undefined || !found.served) return undefined;
    return { definition, version: found };
  }

  /** The kind answered by a function. */
  findVirtual({ group, version, resource }: ResourceName): VirtualResource | undefined {
    return this.#virtual.get(`${resourceKey({ group, resource })}/${version}`);
  }

  /** The stored kind of an object, by its apiVersion and kind. */
  findByKind(object: Pick<KubeObject, "apiVersion" | "kind">): ResourceDefinition | undefined {
    const slash = object.apiVersion.lastIndexOf("/");
    const group = slash < 0 ? "" : object.apiVersion.slice(0, slash);
    return this.all().find((definition) => definition.group === group && definition.kind === object.kind);
  }

  /** Every stored kind, in the order they were added. */
  all(): ResourceDefinition[] {
    return [...this.#definitions.values()];
  }

  /** Every kind answered by a function. */
  allVirtual(): VirtualResource[] {
    return [...this.#virtual.values()];
  }
}

/** Names a resource as URLs do. */
export interface ResourceName {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
}

function resourceKey({ group, resource }: { group: string; resource: string }): string {
  return `${group}/${resource}`;
}
