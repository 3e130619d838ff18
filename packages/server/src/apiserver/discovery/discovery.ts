import { apiVersionOf, type JsonObject } from "@agent-sandbox/api";
import type { DiscoveredGroup, DiscoveredResource } from "./groups.ts";

/** The answer to /api. */
export function apiVersions(): JsonObject {
  return { kind: "APIVersions", versions: ["v1"], serverAddressByClientCIDRs: [] };
}

/** The answer to /apis. */
export function apiGroupList(groups: readonly DiscoveredGroup[]): JsonObject {
  const named = groups.filter(({ group }) => group !== "");
  return { kind: "APIGroupList", apiVersion: "v1", groups: named.map((group) => groupFields(group)) };
}

/** The answer to /apis/<group>. */
export function apiGroup(group: DiscoveredGroup): JsonObject {
  return { kind: "APIGroup", apiVersion: "v1", ...groupFields(group) };
}

function groupFields({ group, versions }: DiscoveredGroup): JsonObject {
  const listed = versions.map(({ version }) => ({ groupVersion: apiVersionOf({ group, version }), version }));
  return { name: group, versions: listed, ...(listed[0] === undefined ? {} : { preferredVersion: listed[0] }) };
}

/** The answer to /api/v1 and /apis/<group>/<version>. */
export function apiResourceList(group: string, version: string, resources: readonly DiscoveredResource[]): JsonObject {
  return {
    kind: "APIResourceList",
    apiVersion: "v1",
    groupVersion: apiVersionOf({ group, version }),
    resources: [...resources],
  };
}

/** The aggregated answer to /api (core group only) or /apis (all others). */
export function aggregatedDiscovery(groups: readonly DiscoveredGroup[], version: string): JsonObject {
  return {
    kind: "APIGroupDiscoveryList",
    apiVersion: `apidiscovery.k8s.io/${version}`,
    metadata: {},
    items: groups.map(({ group, versions }) => ({
      metadata: { name: group },
      versions: versions.map((entry) => ({
        version: entry.version,
        resources: aggregatedResources(group, entry),
        freshness: "Current",
      })),
    })),
  };
}

function aggregatedResources(group: string, { version, resources }: DiscoveredGroup["versions"][number]): JsonObject[] {
  const responseKind = (resource: DiscoveredResource): JsonObject => ({
    group: resource.group ?? group,
    // Kubernetes leaves the version of its first group out here.
    version: resource.version ?? (group === "" ? "" : version),
    kind: resource.kind,
  });
  const parents = resources.filter(({ name }) => !name.includes("/"));
  return parents.map((parent) => {
    const parts = resources
      .filter(({ name }) => name.startsWith(`${parent.name}/`))
      // By name, but the replica count comes last.
      .sort((a, b) => Number(a.kind === "Scale") - Number(b.kind === "Scale"));
    return {
      resource: parent.name,
      responseKind: responseKind(parent),
      scope: parent.namespaced ? "Namespaced" : "Cluster",
      singularResource: parent.singularName,
      verbs: [...parent.verbs],
      ...(parent.shortNames === undefined ? {} : { shortNames: [...parent.shortNames] }),
      ...(parent.categories === undefined ? {} : { categories: [...parent.categories] }),
      ...(parts.length === 0
        ? {}
        : {
            subresources: parts.map((part) => ({
              subresource: part.name.slice(parent.name.length + 1),
              responseKind: responseKind(part),
              verbs: [...part.verbs],
            })),
          }),
    };
  });
}
