import type { JsonObject } from "@agent-sandbox/api";
import type { ResourceDefinition, VersionDefinition } from "../registry/resource-definition.ts";

/** Writes a parameter in the manner of one OpenAPI version. */
type ParameterStyle = (name: string, type: string) => JsonObject;

/** OpenAPI v3 puts the type below `schema`. */
export const v3Parameter: ParameterStyle = (name, type) => ({ name, in: "query", schema: { type, uniqueItems: true } });

/** OpenAPI v2 puts the type beside the name. */
export const v2Parameter: ParameterStyle = (name, type) => ({ name, in: "query", type, uniqueItems: true });

const writeParameters = ["dryRun", "fieldManager", "fieldValidation"];

interface Verb {
  readonly method: string;
  readonly action: string;
  readonly parameters: readonly string[];
}

const collectionVerbs: readonly Verb[] = [
  {
    method: "get",
    action: "list",
    parameters: ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch"],
  },
  { method: "post", action: "post", parameters: writeParameters },
  {
    method: "delete",
    action: "deletecollection",
    parameters: ["dryRun", "labelSelector", "fieldSelector", "propagationPolicy"],
  },
];

const objectVerbs: readonly Verb[] = [
  { method: "get", action: "get", parameters: [] },
  { method: "put", action: "put", parameters: writeParameters },
  { method: "patch", action: "patch", parameters: [...writeParameters, "force"] },
  { method: "delete", action: "delete", parameters: ["dryRun", "gracePeriodSeconds", "propagationPolicy"] },
];

/** The paths of one kind in one version, with what clients look for: kind, action and query parameters. */
export function pathsOf(definition: ResourceDefinition, version: VersionDefinition, style: ParameterStyle): JsonObject {
  const { group, resource, kind, namespaced } = definition;
  const root = group === "" ? `/api/${version.name}` : `/apis/${group}/${version.name}`;
  const collection = namespaced ? `${root}/namespaces/{namespace}/${resource}` : `${root}/${resource}`;
  const gvk = { group, version: version.name, kind };
  const paths: JsonObject = {
    [collection]: pathItem(collectionVerbs, gvk, style),
    [`${collection}/{name}`]: pathItem(objectVerbs, gvk, style),
  };
  if (namespaced) paths[`${root}/${resource}`] = pathItem(collectionVerbs.slice(0, 1), gvk, style);
  if (version.hasStatus) paths[`${collection}/{name}/status`] = pathItem(objectVerbs.slice(0, 3), gvk, style);
  const scale = { group: "autoscaling", version: "v1", kind: "Scale" };
  if (version.scale !== undefined)
    paths[`${collection}/{name}/scale`] = pathItem(objectVerbs.slice(0, 3), scale, style);
  return paths;
}

function pathItem(verbs: readonly Verb[], gvk: JsonObject, style: ParameterStyle): JsonObject {
  return Object.fromEntries(
    verbs.map(({ method, action, parameters }) => [
      method,
      {
        parameters: parameters.map((name) => style(name, "string")),
        responses: { "200": { description: "OK" } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
      },
    ]),
  );
}
