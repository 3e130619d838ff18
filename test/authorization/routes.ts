import { type DiscoveredGroup, discoverGroups } from "../../packages/server/src/apiserver/discovery/groups.ts";
import type { Registry } from "../../packages/server/src/apiserver/registry/registry.ts";
import type { Ask } from "./declared-rights.ts";

/** A verb of a served resource or subresource in one version. */
export interface Route {
  readonly group: string;
  readonly version: string;
  /** With its subresource after a slash. */
  readonly resource: string;
  readonly verb: string;
  readonly namespaced: boolean;
}

/** A route, asked for in one place. */
export interface Cell extends Route {
  readonly scope: Ask["scope"];
}

/** Every verb of everything that the API serves, as discovery tells it: a kind that is added is in here by itself. */
export function routesOf(registry: Registry): Route[] {
  return discoverGroups(registry).flatMap(({ group, versions }: DiscoveredGroup) =>
    versions.flatMap(({ version, resources }) =>
      resources.flatMap(({ name, namespaced, verbs }) =>
        verbs.map((verb) => ({ group, version, resource: name, verb, namespaced })),
      ),
    ),
  );
}

/** Where each route can be asked for: a namespace is asked for by its own name, a kind in namespaces also across all of them. */
export function cellsOf(routes: readonly Route[]): Cell[] {
  return routes.flatMap((route) => scopesOf(route).map((scope) => ({ ...route, scope })));
}

function scopesOf({ group, resource, verb, namespaced }: Route): Ask["scope"][] {
  const isNamespace = group === "" && resource.split("/")[0] === "namespaces";
  if (isNamespace && isNamed(verb, resource)) return ["own", "foreign"];
  if (!namespaced) return ["cluster"];
  return verb === "list" || verb === "watch" ? ["own", "foreign", "cluster"] : ["own", "foreign"];
}

/** Whether the path of a route ends in (or passes through) the name of one object. */
export function isNamed(verb: string, resource: string): boolean {
  return resource.includes("/") || ["get", "update", "patch", "delete"].includes(verb);
}

/** Rights that have no route: other checks of this project or of Kubernetes ask for them. */
export const routelessRights: readonly Omit<Route, "version">[] = (
  [
    ["agents.x-k8s.io", "sandboxes", ["suspend", "resume", "extend"]],
    ["agents.x-k8s.io", "sandboxes/connect", ["create", "get"]],
    ["agents.x-k8s.io", "sandboxes/finalizers", ["update"]],
    ["agents.x-k8s.io", "sandboxclaimaliases/finalizers", ["update"]],
    ["agents.x-k8s.io", "sandboxtemplatealiases/finalizers", ["update"]],
    ["agents.x-k8s.io", "sandboxwarmpoolaliases/finalizers", ["update"]],
    ["extensions.agents.x-k8s.io", "sandboxclaims/finalizers", ["update"]],
    ["extensions.agents.x-k8s.io", "sandboxtemplates/finalizers", ["update"]],
    ["extensions.agents.x-k8s.io", "sandboxwarmpools/finalizers", ["update"]],
    ["", "pods/finalizers", ["update"]],
    ["", "serviceaccounts", ["impersonate"]],
    ["rbac.authorization.k8s.io", "roles", ["bind", "escalate"]],
    ["rbac.authorization.k8s.io", "clusterroles", ["bind", "escalate"]],
  ] as const
).flatMap(([group, resource, verbs]) => verbs.map((verb) => ({ group, resource, verb, namespaced: true })));
