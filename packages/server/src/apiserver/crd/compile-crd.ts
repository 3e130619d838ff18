import { asJson, isJsonObject, type JsonObject, type KubeObject } from "@agent-sandbox/api";
import { listAt, numberAt, objectAt, stringAt } from "../json/json.ts";
import type { ResourceDefinition, ScalePaths, VersionDefinition } from "../registry/resource-definition.ts";
import type { Schema } from "../schema/schema.ts";
import { customColumns, type PrinterColumn } from "../table/columns.ts";

/** What a CRD needs from outside to become a kind. */
export interface CompileOptions {
  /** The schema of `metadata`, the same for all kinds. */
  readonly metadataSchema: Schema;
  readonly convert: ResourceDefinition["convert"];
}

/** Turns an accepted CustomResourceDefinition into a served kind. */
export function compileCrd(crd: KubeObject, { metadataSchema, convert }: CompileOptions): ResourceDefinition {
  const spec = objectAt(asJson(crd), "spec") ?? {};
  const names = objectAt(spec, "names") ?? {};
  const kind = stringAt(names, "kind") ?? "";
  const versions = listAt(spec, "versions").filter(isJsonObject);
  const storage = versions.find((version) => version["storage"] === true);
  const group = stringAt(spec, "group") ?? "";
  return {
    group,
    resource: stringAt(names, "plural") ?? "",
    singular: stringAt(names, "singular") ?? kind.toLowerCase(),
    kind,
    listKind: stringAt(names, "listKind") ?? `${kind}List`,
    shortNames: listAt(names, "shortNames").map(String),
    categories: listAt(names, "categories").map(String),
    namespaced: spec["scope"] !== "Cluster",
    versions: versions.map((version) => compileVersion(version, { group, kind, metadataSchema })),
    storageVersion: stringAt(storage, "name") ?? "",
    subresources: [],
    strategy: {},
    custom: { crdName: crd.metadata.name ?? "", crdUid: crd.metadata.uid ?? "" },
    ...(convert === undefined || versions.length < 2 ? {} : { convert }),
  };
}

interface VersionContext {
  readonly group: string;
  readonly kind: string;
  readonly metadataSchema: Schema;
}

function compileVersion(version: JsonObject, { group, kind, metadataSchema }: VersionContext): VersionDefinition {
  const name = stringAt(version, "name") ?? "";
  const subresources = objectAt(version, "subresources");
  const scale = scalePaths(objectAt(subresources, "scale"));
  const isDeprecated = version["deprecated"] === true;
  const warning = stringAt(version, "deprecationWarning") ?? `${group}/${name} ${kind} is deprecated`;
  const schema = objectAt(objectAt(version, "schema"), "openAPIV3Schema");
  const columns = listAt(version, "additionalPrinterColumns").filter(isJsonObject).map(printerColumn);
  const selectable = listAt(version, "selectableFields").filter(isJsonObject);
  return {
    name,
    served: version["served"] === true,
    schema: rootSchema(schema, metadataSchema),
    columns: customColumns(columns),
    hasStatus: subresources?.["status"] !== undefined,
    selectableFields: selectable.map((field) => stringAt(field, "jsonPath") ?? ""),
    ...(scale === undefined ? {} : { scale }),
    ...(isDeprecated ? { deprecationWarning: warning } : {}),
  };
}

function scalePaths(scale: JsonObject | undefined): ScalePaths | undefined {
  if (scale === undefined) return undefined;
  const labelSelectorPath = stringAt(scale, "labelSelectorPath");
  return {
    specReplicasPath: stringAt(scale, "specReplicasPath") ?? "",
    statusReplicasPath: stringAt(scale, "statusReplicasPath") ?? "",
    ...(labelSelectorPath === undefined ? {} : { labelSelectorPath }),
  };
}

/** The CRD's schema with the three fields every object has; the CRD may restrict metadata.name further. */
function rootSchema(source: JsonObject | undefined, metadataSchema: Schema): Schema {
  const schema = normalize((source ?? { type: "object", "x-kubernetes-preserve-unknown-fields": true }) as JsonObject);
  const restricted = schema.properties?.["metadata"]?.properties ?? {};
  const metadata: Schema = { ...metadataSchema, properties: { ...metadataSchema.properties } };
  for (const key of ["name", "generateName"]) {
    const rule = restricted[key];
    if (rule !== undefined && metadata.properties !== undefined) metadata.properties[key] = { type: "string", ...rule };
  }
  return {
    ...schema,
    properties: { ...schema.properties, apiVersion: { type: "string" }, kind: { type: "string" }, metadata },
  };
}

/** One entry of `additionalPrinterColumns`, which the CRD's own schema has checked. */
function printerColumn(column: JsonObject): PrinterColumn {
  const [format, description] = [stringAt(column, "format"), stringAt(column, "description")];
  const priority = numberAt(column, "priority");
  return {
    name: stringAt(column, "name") ?? "",
    type: stringAt(column, "type") ?? "",
    jsonPath: stringAt(column, "jsonPath") ?? "",
    ...(format === undefined ? {} : { format }),
    ...(description === undefined ? {} : { description }),
    ...(priority === undefined ? {} : { priority }),
  };
}

/** A schema node with the embedded-resource fields made explicit; the CRD object itself is never changed. */
function normalize(source: JsonObject): Schema {
  const schema = { ...source } as Schema & JsonObject;
  const properties = objectAt(source, "properties");
  if (properties !== undefined) {
    schema.properties = Object.fromEntries(
      Object.entries(properties).map(([key, node]) => [key, normalize((node ?? {}) as JsonObject)]),
    );
  }
  if (isJsonObject(source["items"])) schema.items = normalize(source["items"]);
  if (isJsonObject(source["additionalProperties"]))
    schema.additionalProperties = normalize(source["additionalProperties"]);
  return schema;
}
