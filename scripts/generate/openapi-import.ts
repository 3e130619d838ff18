import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Definitions, definitionOf, refName, type Schema } from "./schema.ts";
import type { ServedKind } from "./served-kinds.ts";

/** The Go module whose OpenAPI documents describe the built-in kinds. */
export const kubernetesModule = { path: "k8s.io/kubernetes", version: "v1.36.3" } as const;

/** The module's directory in the Go module cache, or undefined where it was never downloaded. */
export function findKubernetesModule(options: { download: boolean }): string | undefined {
  const cache = moduleCache();
  if (cache === undefined) {
    if (options.download) throw new Error("go is not on the PATH; it fetches the Kubernetes documents");
    return undefined;
  }
  const directory = join(cache, `${kubernetesModule.path}@${kubernetesModule.version}`);
  if (existsSync(join(directory, "api/openapi-spec/v3"))) return directory;
  if (!options.download) return undefined;
  const wanted = `${kubernetesModule.path}@${kubernetesModule.version}`;
  execFileSync("go", ["mod", "download", wanted], { stdio: ["ignore", "ignore", "inherit"] });
  return directory;
}

function moduleCache(): string | undefined {
  try {
    return execFileSync("go", ["env", "GOMODCACHE"], { encoding: "utf8" }).trim();
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

/** Reduces the module's documents to the definitions that the served kinds reach, without prose. */
export function importDefinitions(moduleDirectory: string, kinds: readonly ServedKind[]): Definitions {
  const all = readDocuments(join(moduleDirectory, "api/openapi-spec/v3"));
  const reached = new Map<string, Schema>();
  const pending = kinds.map((kind) => kind.definition).filter((name) => !name.startsWith("io.k8s.metrics."));
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    if (reached.has(name)) continue;
    const schema = special(name) ?? simplify(definitionOf(all, name));
    reached.set(name, schema);
    pending.push(...refsOf(schema));
  }
  return Object.fromEntries([...reached].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function readDocuments(directory: string): Definitions {
  const all: Definitions = {};
  const files = readdirSync(directory).filter((file) => file === "api__v1_openapi.json" || file.startsWith("apis__"));
  for (const file of files) {
    const document = JSON.parse(readFileSync(join(directory, file), "utf8")) as {
      components?: { schemas?: Definitions };
    };
    Object.assign(all, document.components?.schemas);
  }
  return all;
}

/** Types whose wire form OpenAPI tells only in prose. */
function special(name: string): Schema | undefined {
  switch (name) {
    case "io.k8s.apimachinery.pkg.api.resource.Quantity":
      return { format: "quantity", "x-kubernetes-int-or-string": true };
    case "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
      return { "x-kubernetes-int-or-string": true };
    case "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1":
      return { type: "object", "x-kubernetes-preserve-unknown-fields": true };
    case "io.k8s.apimachinery.pkg.runtime.RawExtension":
      return { type: "object", "x-kubernetes-preserve-unknown-fields": true };
    case "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON":
    case "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray":
    case "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool":
    case "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray":
      return { "x-kubernetes-preserve-unknown-fields": true };
    default:
      return undefined;
  }
}

function simplify(schema: Schema): Schema {
  const out: Schema = {};
  for (const [key, value] of Object.entries(schema)) {
    if (key === "description" || key === "x-kubernetes-group-version-kind") continue;
    if (key === "allOf") Object.assign(out, simplifyAllOf(schema));
    else if (key === "properties") out.properties = simplifyProperties(schema);
    else if (key === "items") out.items = withoutDefault(simplify(value as Schema));
    else if (key === "additionalProperties") out.additionalProperties = withoutDefault(simplify(value as Schema));
    else if (key === "x-kubernetes-unions") continue;
    else Object.assign(out, { [key]: value });
  }
  if (out.$ref !== undefined) out.$ref = `#/definitions/${refName(out.$ref)}`;
  return out;
}

/** The documents wrap a reference with siblings in an `allOf` of one. */
function simplifyAllOf(schema: Schema): Schema {
  const [only, ...others] = schema.allOf ?? [];
  if (only === undefined || others.length > 0) throw new Error("an allOf of several schemas is not understood");
  return simplify(only);
}

/**
 * Keeps the defaults that mean something. The documents also print Go's zero value on every required
 * field and `{}` on every embedded struct, which no API server applies.
 */
function simplifyProperties(schema: Schema): Record<string, Schema> {
  const required = new Set(schema.required);
  const properties: Record<string, Schema> = {};
  for (const [name, value] of Object.entries(schema.properties ?? {})) {
    const property = simplify(value);
    const meaningless = required.has(name) || typeof property.default === "object";
    properties[name] = meaningless ? withoutDefault(property) : property;
  }
  return properties;
}

function withoutDefault(schema: Schema): Schema {
  const { default: _, ...rest } = schema;
  return rest;
}

function refsOf(schema: Schema): string[] {
  const children = [...Object.values(schema.properties ?? {}), schema.items, schema.additionalProperties];
  const own = schema.$ref === undefined ? [] : [refName(schema.$ref)];
  return [...own, ...children.flatMap((child) => (child === undefined ? [] : refsOf(child)))];
}
