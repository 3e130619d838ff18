import { apiVersionOf, asObject, badRequest, isJsonObject, type JsonObject, type KubeObject } from "@agent-sandbox/api";
import { textOf } from "../json/json.ts";
import { bodyType, readBody } from "../request/read-body.ts";
import { dropNulls } from "../schema/apply-defaults.ts";
import { decodeBuiltin } from "../schema/decode-builtin.ts";
import { invalid, invalidObject, invalidOptions, notSupported } from "../schema/field-error.ts";
import { assertMetadataShape } from "../schema/metadata.ts";
import { prune } from "../schema/prune.ts";
import type { RequestScope } from "../scope/scope.ts";

/** Reads the request's body as an object of the request's kind: typed, pruned, with names checked against the URL. */
export function decodeObject(scope: RequestScope): KubeObject {
  const { value, duplicates } = readBody(scope.request);
  if (!isJsonObject(value))
    throw badRequest(`the object provided is unrecognized (must be of type ${scope.definition.kind})`);
  const unknown = shapeObject(scope, value);
  reportFields(scope, { unknown, duplicates });
  return asObject(value);
}

/** Gives JSON the shape of the kind, in place; returns the paths of unknown fields that were removed. */
export function shapeObject(scope: RequestScope, value: JsonObject, isApplied = false): readonly string[] {
  checkKind(scope, value);
  assertMetadataShape(value);
  const { definition, version } = scope;
  dropEmpty(value["metadata"] as JsonObject, emptyMetadata);
  if (definition.custom === undefined) {
    if (!isApplied) dropEmptyContent(value);
    return decodeBuiltin(value, version.schema, definition.kind).unknown;
  }
  const metadata = value["metadata"] as JsonObject;
  const metaSchema = version.schema.properties?.["metadata"] ?? {};
  const metaUnknown = decodeBuiltin(metadata, metaSchema, definition.kind, "ObjectMeta").unknown.map(
    (path) => `metadata.${path}`,
  );
  const unknown = prune(value, version.schema);
  dropNulls(value, version.schema);
  return [...metaUnknown, ...unknown];
}

/** Removes the parts of a ConfigMap or Secret that Go does not write when they are empty. */
export function dropEmptyContent(object: JsonObject): void {
  dropEmpty(object, ["data", "binaryData"]);
}

/** Parts of metadata that Go does not write when they are empty. */
const emptyMetadata = ["labels", "annotations", "finalizers", "ownerReferences"];

function dropEmpty(object: JsonObject, keys: readonly string[]): void {
  for (const key of keys) {
    const value = object[key];
    if (typeof value === "object" && value !== null && Object.keys(value).length === 0) delete object[key];
  }
}

function checkKind({ definition, version }: RequestScope, value: JsonObject): void {
  const apiVersion = apiVersionOf({ group: definition.group, version: version.name });
  const isCustom = definition.custom !== undefined;
  if (value["kind"] === undefined || value["kind"] === "") {
    if (isCustom) throw missing("Kind", definition.kind, value);
    value["kind"] = definition.kind;
  }
  if (value["apiVersion"] === undefined || value["apiVersion"] === "") {
    if (isCustom) throw missing("apiVersion", definition.kind, value);
    value["apiVersion"] = apiVersion;
  }
  if (value["apiVersion"] !== apiVersion) {
    throw badRequest(
      `the API version in the data (${textOf(value["apiVersion"])}) does not match the expected API version (${apiVersion})`,
    );
  }
  if (value["kind"] !== definition.kind && isCustom) {
    const metadata = value["metadata"];
    const name = isJsonObject(metadata) ? textOf(metadata["name"] ?? "") : "";
    const problem = invalid("kind", value["kind"], `must be ${definition.kind}`);
    throw invalidObject({ group: definition.group, kind: textOf(value["kind"]), name }, [problem]);
  }
  if (value["kind"] !== definition.kind) {
    throw badRequest(
      `${apiVersion}, Kind=${textOf(value["kind"])} in version ${JSON.stringify(version.name)} cannot be handled as a ${definition.kind}`,
    );
  }
}

function missing(field: string, kind: string, value: JsonObject): Error {
  const text = excerpt(value);
  return badRequest(
    `the object provided is unrecognized (must be of type ${kind}): Object '${field}' is missing in '${text}' (${text})`,
  );
}

function excerpt(value: JsonObject): string {
  return JSON.stringify(value).slice(0, 200);
}

/** Answers `fieldValidation`: refuses (Strict), warns (Warn, the default) or stays silent (Ignore). */
export function reportFields(
  scope: RequestScope,
  { unknown, duplicates }: { unknown: readonly string[]; duplicates: readonly string[] },
): void {
  const directive = scope.query.get("fieldValidation") ?? "";
  if (!["", "Ignore", "Warn", "Strict"].includes(directive)) {
    throw invalidOptions(scope.request.method === "POST" ? "CreateOptions" : "UpdateOptions", [
      notSupported("fieldValidation", directive, ["", "Ignore", "Strict", "Warn"]),
    ]);
  }
  if (directive === "Ignore") return;
  const problems = [
    ...duplicates.map((path) => `duplicate field ${JSON.stringify(path)}`),
    ...unknown.map((path) => `unknown field ${JSON.stringify(path)}`),
  ];
  if (problems.length === 0) return;
  if (directive !== "Strict") {
    scope.warnings.push(...problems);
    return;
  }
  const { kind, group } = scope.definition;
  const problem = `strict decoding error: ${problems.join(", ")}`;
  // A patch is no object: what is wrong is found in what it makes of one.
  const isPatch = scope.request.method === "PATCH" && bodyType(scope.request) !== "application/apply-patch+yaml";
  if (isPatch) throw invalidObject({ group, kind, name: scope.name }, [invalid("patch", "", problem)]);
  throw badRequest(
    `${kind} in version ${JSON.stringify(scope.version.name)} cannot be handled as a ${kind}: ${problem}`,
  );
}
