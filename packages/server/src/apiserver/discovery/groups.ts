import type { Registry } from "../registry/registry.ts";
import type { ResourceDefinition, VersionDefinition } from "../registry/resource-definition.ts";
import { compareVersions } from "./version-order.ts";

/** One resource as discovery tells of it. */
export type DiscoveredResource = {
  readonly name: string;
  readonly singularName: string;
  readonly namespaced: boolean;
  readonly kind: string;
  /** Set where the body is of another group and version than the resource, as for scale. */
  readonly group?: string;
  readonly version?: string;
  readonly verbs: string[];
  readonly shortNames?: string[];
  readonly categories?: string[];
};

/** One version of a group and its resources. */
export interface DiscoveredVersion {
  readonly version: string;
  readonly resources: readonly DiscoveredResource[];
}

/** One group; the preferred version comes first. */
export interface DiscoveredGroup {
  readonly group: string;
  readonly versions: readonly DiscoveredVersion[];
}

const objectVerbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/** The order in which Kubernetes names the verbs of users' kinds. */
const customVerbs = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const partVerbs = ["get", "patch", "update"];

interface SubresourceFacts {
  readonly kind: string;
  readonly verbs: readonly string[];
  readonly group?: string;
  readonly version?: string;
}

const proxyVerbs = ["create", "delete", "get", "patch", "update"];

/** What discovery says about subresources whose body is not the object itself. */
const subresourceFacts: Readonly<Record<string, SubresourceFacts>> = {
  "pods/attach": { kind: "PodAttachOptions", verbs: ["create", "get"] },
  "pods/binding": { kind: "Binding", verbs: ["create"] },
  "pods/eviction": { kind: "Eviction", verbs: ["create"], group: "policy", version: "v1" },
  "pods/exec": { kind: "PodExecOptions", verbs: ["create", "get"] },
  "pods/log": { kind: "Pod", verbs: ["get"] },
  "pods/portforward": { kind: "PodPortForwardOptions", verbs: ["create", "get"] },
  "nodes/proxy": { kind: "NodeProxyOptions", verbs: proxyVerbs },
  "namespaces/finalize": { kind: "Namespace", verbs: ["update"] },
  "serviceaccounts/token": { kind: "TokenRequest", verbs: ["create"], group: "authentication.k8s.io", version: "v1" },
};

/** Everything that is served, by group; core first, then in the order kinds were added. */
export function discoverGroups(registry: Registry): DiscoveredGroup[] {
  const groups = new Map<string, Map<string, DiscoveredResource[]>>([["", new Map()]]);
  const resourcesOf = (group: string, version: string): DiscoveredResource[] => {
    const versions = groups.get(group) ?? new Map<string, DiscoveredResource[]>();
    groups.set(group, versions);
    const resources = versions.get(version) ?? [];
    versions.set(version, resources);
    return resources;
  };
  for (const definition of registry.all()) {
    for (const version of definition.versions) {
      if (version.served) resourcesOf(definition.group, version.name).push(...discoverResource(definition, version));
    }
  }
  for (const { group, version, resource, kind, namespaced, ...rest } of registry.allVirtual()) {
    const verbs = (["create", "get", "list"] as const).filter((verb) => rest[verb] !== undefined);
    resourcesOf(group, version).push({ name: resource, singularName: kind.toLowerCase(), namespaced, kind, verbs });
  }
  return [...groups].map(([group, versions]) => ({
    group,
    versions: [...versions]
      .map(([version, resources]) => ({ version, resources: resources.sort((a, b) => (a.name < b.name ? -1 : 1)) }))
      .sort((a, b) => compareVersions(a.version, b.version)),
  }));
}

/** Namespaces go one by one: each has its own content to remove first. */
export function hasDeleteCollection({ group, resource }: ResourceDefinition): boolean {
  return group !== "" || resource !== "namespaces";
}

function verbsOf(definition: ResourceDefinition): readonly string[] {
  if (definition.custom !== undefined) return customVerbs;
  return hasDeleteCollection(definition) ? objectVerbs : objectVerbs.filter((verb) => verb !== "deletecollection");
}

function discoverResource(definition: ResourceDefinition, version: VersionDefinition): DiscoveredResource[] {
  const { resource, singular, namespaced, kind, shortNames, categories } = definition;
  const base = { singularName: "", namespaced };
  const found: DiscoveredResource[] = [
    {
      name: resource,
      singularName: singular,
      namespaced,
      kind,
      verbs: [...verbsOf(definition)],
      ...(shortNames.length === 0 ? {} : { shortNames: [...shortNames] }),
      ...(categories.length === 0 ? {} : { categories: [...categories] }),
    },
  ];
  if (version.hasStatus) found.push({ ...base, name: `${resource}/status`, kind, verbs: partVerbs });
  if (version.scale !== undefined) {
    found.push({
      ...base,
      name: `${resource}/scale`,
      kind: "Scale",
      group: "autoscaling",
      version: "v1",
      verbs: partVerbs,
    });
  }
  for (const name of definition.subresources) {
    const facts = subresourceFacts[`${resource}/${name}`];
    if (facts !== undefined) found.push({ ...base, name: `${resource}/${name}`, ...facts, verbs: [...facts.verbs] });
  }
  return found;
}
