import { readFileSync } from "node:fs";
import type { JsonObject } from "@agent-sandbox/api";
import { specFile } from "../../installation/installation.ts";
import type { ResourceDefinition } from "../registry/resource-definition.ts";
import { nameGoType, type Schema } from "../schema/schema.ts";
import { builtinColumns } from "../table/builtin-columns.ts";
import { convertEvent } from "./event-conversion.ts";
import { strategyOf } from "./strategies.ts";

/** One entry of `spec/builtin/kinds.json`. */
export interface BuiltinKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly namespaced: boolean;
  /** `object`: stored. `review`: answered, never stored. `body`: only ever a request body. */
  readonly role: "object" | "review" | "body";
  readonly definition: string;
  readonly resource?: string;
  readonly shortNames?: readonly string[];
  readonly categories?: readonly string[];
  readonly subresources?: readonly string[];
}

/** The built-in kinds and their schemas, read from `spec/builtin`. */
export interface BuiltinSpec {
  readonly kinds: readonly BuiltinKind[];
  /** The OpenAPI definitions as in the file, with `$ref`s. */
  readonly definitions: Readonly<Record<string, JsonObject>>;
}

/** Reads the specification of the built-in kinds from disk. */
export function readBuiltinSpec(): BuiltinSpec {
  const read = (name: "builtin/kinds.json" | "builtin/definitions.json"): unknown =>
    JSON.parse(readFileSync(specFile(name), "utf8"));
  return {
    kinds: read("builtin/kinds.json") as BuiltinKind[],
    definitions: read("builtin/definitions.json") as Record<string, JsonObject>,
  };
}

/** The definitions of every stored built-in kind. */
export function builtinDefinitions(spec: BuiltinSpec, schemas: SchemaSet): ResourceDefinition[] {
  return spec.kinds.filter((kind) => kind.role === "object").map((kind) => builtinDefinition(kind, schemas));
}

/** Without anything behind them: no node grows a running pod, adds containers to it or proxies to it. */
const unserved = new Set(["pods/ephemeralcontainers", "pods/proxy", "pods/resize", "services/proxy"]);

function builtinDefinition(kind: BuiltinKind, schemas: SchemaSet): ResourceDefinition {
  const subresources = kind.subresources ?? [];
  const isNewEvent = kind.group === "events.k8s.io";
  return {
    group: kind.group,
    resource: kind.resource ?? "",
    singular: kind.kind.toLowerCase(),
    kind: kind.kind,
    listKind: `${kind.kind}List`,
    shortNames: kind.shortNames ?? [],
    categories: kind.categories ?? [],
    namespaced: kind.namespaced,
    storageVersion: kind.version,
    subresources: subresources.filter(
      (name) => name !== "status" && name !== "scale" && !unserved.has(`${kind.resource ?? ""}/${name}`),
    ),
    strategy: strategyOf(kind.group, kind.resource ?? ""),
    versions: [
      {
        name: kind.version,
        served: true,
        schema: schemas.resolve(kind.definition),
        columns: builtinColumns(kind.group, kind.resource ?? ""),
        hasStatus: subresources.includes("status"),
        selectableFields: [],
      },
    ],
    ...(isNewEvent ? { storedAs: { group: "", resource: "events" }, convert: convertEvent } : {}),
  };
}

/** Resolves `$ref`s of the OpenAPI definitions into a graph; a definition is resolved once. */
export class SchemaSet {
  readonly #definitions: Readonly<Record<string, JsonObject>>;
  readonly #resolved = new Map<string, Schema>();
  /** References with keys beside them; filled when their target is complete, because a target may be recursive. */
  #pending: { readonly node: Schema; readonly target: Schema; readonly beside: JsonObject }[] = [];
  #depth = 0;

  constructor(definitions: Readonly<Record<string, JsonObject>>) {
    this.#definitions = definitions;
  }

  /** The schema of a definition by its full name. */
  resolve(name: string): Schema {
    const known = this.#resolved.get(name);
    if (known !== undefined) return known;
    const source = this.#definitions[name];
    if (source === undefined) throw new Error(`bug: spec/builtin has no definition ${name}`);
    const schema: Schema = {};
    // Registered before it is filled: a recursive definition finds itself.
    this.#resolved.set(name, schema);
    this.#depth++;
    Object.assign(schema, this.#node(source));
    nameGoType(schema, name);
    if (--this.#depth === 0) this.#fillPending();
    return schema;
  }

  #fillPending(): void {
    const pending = this.#pending;
    this.#pending = [];
    for (const { node, target, beside } of pending) Object.assign(node, target, beside);
  }

  #reference(source: JsonObject, name: string): Schema {
    const { $ref: _reference, ...beside } = source;
    const target = this.resolve(name);
    if (Object.keys(beside).length === 0) return target;
    const node: Schema = {};
    this.#pending.push({ node, target, beside: beside as JsonObject });
    return node;
  }

  #node(source: JsonObject): Schema {
    const reference = refName(source);
    if (reference !== undefined) return this.#reference(source, reference);
    const schema = { ...source } as Schema & JsonObject;
    const properties = source["properties"] as Record<string, JsonObject> | undefined;
    if (properties !== undefined) {
      schema.properties = Object.fromEntries(Object.entries(properties).map(([key, node]) => [key, this.#node(node)]));
    }
    if (typeof source["items"] === "object") schema.items = this.#node(source["items"] as JsonObject);
    if (typeof source["additionalProperties"] === "object") {
      schema.additionalProperties = this.#node(source["additionalProperties"] as JsonObject);
    }
    return schema;
  }
}

function refName(source: JsonObject): string | undefined {
  const reference = source["$ref"];
  return typeof reference === "string" ? reference.slice(reference.lastIndexOf("/") + 1) : undefined;
}
