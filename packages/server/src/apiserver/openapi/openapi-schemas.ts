import { isJsonObject, type JsonObject } from "@agent-sandbox/api";
import type { ResourceDefinition, VersionDefinition } from "../registry/resource-definition.ts";
import type { Schema } from "../schema/schema.ts";
import type { ServerParts } from "../scope/server-parts.ts";

/** Named schemas of one document; references are names without a prefix path. */
export type SchemaMap = Record<string, JsonObject>;

/** The OpenAPI name of a kind: that of its Go type for built-in ones, made from group, version and kind for others. */
function schemaName(server: ServerParts, definition: ResourceDefinition, version: VersionDefinition): string {
  if (definition.custom === undefined) {
    const kind = server.builtinSpec.kinds.find(
      (entry) => entry.group === definition.group && entry.resource === definition.resource,
    );
    if (kind !== undefined) return kind.definition;
  }
  return `${definition.group.split(".").reverse().join(".")}.${version.name}.${definition.kind}`;
}

const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const listMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/** The schemas of the kinds given, of their lists and of everything they refer to. */
export function schemasFor(
  server: ServerParts,
  kinds: readonly { definition: ResourceDefinition; version: VersionDefinition }[],
  refPrefix: string,
): SchemaMap {
  const found: SchemaMap = {};
  const pending: string[] = [
    objectMeta,
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
  ];
  for (const { definition, version } of kinds) {
    const name = schemaName(server, definition, version);
    const gvk = { group: definition.group, kind: definition.kind, version: version.name };
    if (definition.custom === undefined) pending.push(name);
    else found[name] = customSchema(version.schema, refPrefix);
    found[`${name}List`] = listSchema(name, gvk, refPrefix);
    found[name] = {
      ...(found[name] ?? builtinSchema(server, name, refPrefix, pending)),
      "x-kubernetes-group-version-kind": [gvk],
    };
  }
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    if (found[name] === undefined) found[name] = builtinSchema(server, name, refPrefix, pending);
  }
  found[listMeta] ??= {
    type: "object",
    properties: { resourceVersion: { type: "string" }, continue: { type: "string" } },
  };
  return found;
}

function builtinSchema(server: ServerParts, name: string, refPrefix: string, pending: string[]): JsonObject {
  const source = server.builtinSpec.definitions[name];
  return source === undefined ? { type: "object" } : (rewrite(source, refPrefix, pending) as JsonObject);
}

/** A copy with references pointing to where the document keeps its schemas; the names they point to are queued. */
function rewrite(value: unknown, refPrefix: string, pending: string[]): unknown {
  if (Array.isArray(value)) return value.map((item) => rewrite(item, refPrefix, pending));
  if (!isJsonObject(value)) return value;
  const copy: JsonObject = {};
  for (const [key, item] of Object.entries(value)) {
    if (key === "$ref" && typeof item === "string") {
      const name = item.slice(item.lastIndexOf("/") + 1);
      pending.push(name);
      copy[key] = refPrefix + name;
    } else copy[key] = rewrite(item, refPrefix, pending) as JsonObject;
  }
  return copy;
}

function customSchema(schema: Schema, refPrefix: string): JsonObject {
  const copy = structuredClone({
    ...schema,
    properties: { ...schema.properties, metadata: {} },
  }) as JsonObject;
  const properties = copy["properties"] as JsonObject;
  properties["metadata"] = { $ref: refPrefix + objectMeta };
  return copy;
}

function listSchema(
  name: string,
  gvk: { group: string; kind: string; version: string },
  refPrefix: string,
): JsonObject {
  return {
    type: "object",
    required: ["items"],
    properties: {
      apiVersion: { type: "string" },
      kind: { type: "string" },
      metadata: { $ref: refPrefix + listMeta },
      items: { type: "array", items: { $ref: refPrefix + name } },
    },
    "x-kubernetes-group-version-kind": [{ ...gvk, kind: `${gvk.kind}List` }],
  };
}
