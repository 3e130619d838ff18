import {
  ApiError,
  asJson,
  asObject,
  badRequest,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  jsonPatch,
  type KubeObject,
  mergePatch,
  namespacedKey,
  PatchError,
  PatchSchema,
  type PatchSchemaNode,
  strategicMergePatch,
  unsupportedMediaType,
} from "@agent-sandbox/api";
import { applyConfiguration } from "../apply/field-manager.ts";
import { cloneJson } from "../json/json.ts";
import type { ApiResponse } from "../request/api-request.ts";
import { bodyBytes, bodyType, readJson, readYaml } from "../request/read-body.ts";
import { forbiddenField, invalidOptions, required } from "../schema/field-error.ts";
import type { RequestScope } from "../scope/scope.ts";
import { answerWrite, createObject, trackCreate, writerOf } from "./create.ts";
import { dropEmptyContent, reportFields, shapeObject } from "./decode-object.ts";
import { requireCreate } from "./require-create.ts";
import { updateObject } from "./update.ts";

type PatchKind = "json" | "merge" | "strategic" | "apply";

const patchKinds: Readonly<Record<string, PatchKind>> = {
  "application/json-patch+json": "json",
  "application/merge-patch+json": "merge",
  "application/strategic-merge-patch+json": "strategic",
  "application/apply-patch+yaml": "apply",
};

/** Operations of one JSON patch, at most; the same bound as Kubernetes. */
const operationsMax = 10_000;

/** PATCH of one object or of its status. */
export async function patchVerb(scope: RequestScope): Promise<ApiResponse> {
  const kind = patchKindOf(scope);
  const bytes = bodyBytes(scope.request);
  const { value, duplicates } = kind === "apply" ? readYaml(bytes) : readJson(bytes);
  if (kind === "apply") return applyPatch(scope, value, duplicates);
  if (scope.query.get("force") !== null)
    throw invalidOptions("PatchOptions", [forbiddenField("force", "may not be specified for non-apply patch")]);
  const written = await updateObject(scope, {
    isBlind: true,
    next: (live) => patched(scope, { kind, patch: value, live, duplicates }),
  });
  return answerWrite(scope, 200, written);
}

function patchKindOf(scope: RequestScope): PatchKind {
  const type = bodyType(scope.request);
  const kind = Object.hasOwn(patchKinds, type) ? patchKinds[type] : undefined;
  if (kind !== undefined && !(kind === "strategic" && scope.definition.custom !== undefined)) return kind;
  if (kind === undefined) throw new ApiError("UnsupportedMediaType", "415: Unsupported Media Type", { details: {} });
  const accepted = Object.keys(patchKinds).filter(
    (name) => scope.definition.custom === undefined || !name.includes("strategic"),
  );
  throw unsupportedMediaType(
    `the body of the request was in an unknown format - accepted media types include: ${accepted.join(", ")}`,
  );
}

interface PatchStep {
  readonly kind: Exclude<PatchKind, "apply">;
  readonly patch: JsonValue;
  readonly live: KubeObject;
  readonly duplicates: readonly string[];
}

function patched(scope: RequestScope, { kind, patch, live, duplicates }: PatchStep): KubeObject {
  const result = runPatch(scope, { kind, patch, live });
  if (!isJsonObject(result)) throw badRequest("the patch does not leave an object");
  const unknown = shapeObject(scope, result);
  reportFields(scope, { unknown, duplicates });
  const object = asObject(result);
  const name = object.metadata.name ?? "";
  if (name !== scope.name)
    throw badRequest(`the name of the object (${name}) does not match the name on the URL (${scope.name})`);
  return object;
}

function runPatch(scope: RequestScope, { kind, patch, live }: Omit<PatchStep, "duplicates">): JsonValue {
  const document = asJson(live);
  try {
    switch (kind) {
      case "json":
        if (Array.isArray(patch) && patch.length > operationsMax) {
          throw new PatchError("malformed", `the allowed maximum operations in a JSON patch is ${operationsMax}`);
        }
        return cloneJson(jsonPatch(document as never, patch)) as JsonValue;
      case "merge":
        return cloneJson(mergePatch(document as never, patch as never)) as JsonValue;
      case "strategic":
        if (!isJsonObject(patch)) throw new PatchError("malformed", "the patch must be an object");
        return cloneJson(strategicMergePatch(document as never, patch as never, patchSchema(scope))) as JsonValue;
      default:
        return kind satisfies never;
    }
  } catch (error) {
    if (error instanceof PatchError) throw patchFailure(error);
    throw error;
  }
}

/** The served schema names how lists merge; its references are resolved already. */
function patchSchema(scope: RequestScope): PatchSchema {
  return new PatchSchema({}, scope.version.schema as PatchSchemaNode);
}

/** A patch that is nonsense is 400; one that does not fit this object is 422, as in Kubernetes. */
function patchFailure(error: PatchError): ApiError {
  if (error.code === "malformed") return badRequest(error.message, { cause: error });
  return new ApiError("Invalid", `the server rejected our request due to an error in our request: ${error.message}`, {
    details: {},
    cause: error,
  });
}

async function applyPatch(scope: RequestScope, value: JsonValue, duplicates: readonly string[]): Promise<ApiResponse> {
  if (!isJsonObject(value)) throw badRequest("the applied configuration must be an object");
  if ((scope.query.get("fieldManager") ?? "") === "") {
    throw invalidOptions("PatchOptions", [required("fieldManager", "is required for apply patch")]);
  }
  const config = configOf(scope, value, duplicates);
  const writer = { ...writerOf(scope), force: scope.query.get("force") === "true" };
  const isThere = scope.server.storage.getRow(scope.definition, scope) !== undefined;
  if (!isThere && scope.subresource === "") {
    requireCreate(scope);
    const fresh = applyConfiguration(undefined, config, writer);
    if (scope.definition.custom === undefined) dropEmptyContent(asJson(fresh));
    const entries = fresh.metadata.managedFields;
    delete fresh.metadata.managedFields;
    const written = await createObject(scope, fresh, (object) => {
      if (entries === undefined) trackCreate(scope)(object);
      else object.metadata.managedFields = entries;
    });
    return answerWrite(scope, 201, written);
  }
  const written = await updateObject(scope, {
    isBlind: (config.metadata.resourceVersion ?? "") === "",
    next: (live) => {
      const next = asObject(cloneJson(asJson(applyConfiguration(live, config, writer))));
      if (scope.definition.custom === undefined) dropEmptyContent(asJson(next));
      // A version in the configuration is a precondition; one that is not there must not become one.
      next.metadata.resourceVersion = config.metadata.resourceVersion ?? "";
      return next;
    },
    track: () => undefined,
  });
  return answerWrite(scope, 200, written);
}

/** What is applied to a kind of Kubernetes' own must fit it: a field that is not there cannot be owned. */
function refuseUnknown({ definition, version, namespace, name }: RequestScope, unknown: readonly string[]): void {
  const [first] = unknown;
  if (definition.custom !== undefined || first === undefined) return;
  const place = `${namespacedKey(namespace, name)}; ${definition.group}/${version.name}, Kind=${definition.kind}`;
  throw badRequest(`failed to create typed patch object (${place}): .${first}: field not declared in schema`);
}

function configOf(scope: RequestScope, value: JsonObject, duplicates: readonly string[]): KubeObject {
  const metadata = isJsonObject(value["metadata"]) ? value["metadata"] : {};
  if (Array.isArray(metadata["managedFields"]) && metadata["managedFields"].length > 0) {
    throw badRequest("metadata.managedFields must be nil");
  }
  // A manager that applies an empty map owns it, although nothing of it is stored.
  const unknown = shapeObject(scope, value, true);
  refuseUnknown(scope, unknown);
  reportFields(scope, { unknown, duplicates });
  const config = asObject(value);
  if (config.metadata.name !== undefined && config.metadata.name !== scope.name) {
    throw badRequest(
      `the name of the object (${config.metadata.name}) does not match the name on the URL (${scope.name})`,
    );
  }
  config.metadata.name = scope.name;
  if (scope.definition.namespaced) config.metadata.namespace = scope.namespace;
  // A field that this endpoint does not set gets no owner through it.
  if (scope.subresource === "" && scope.version.hasStatus) delete asJson(config)["status"];
  if (scope.subresource === "status") {
    for (const key of Object.keys(config))
      if (!["apiVersion", "kind", "metadata", "status"].includes(key)) delete asJson(config)[key];
    const { name, namespace, resourceVersion, uid } = config.metadata;
    config.metadata = {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
      ...(uid === undefined ? {} : { uid }),
    };
  }
  return config;
}
