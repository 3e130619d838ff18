import {
  asJson,
  asObject,
  badRequest,
  conflict,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  jsonPatch,
  type KubeObject,
  mergePatch,
  methodNotAllowed,
  notFound,
  unsupportedMediaType,
} from "@agent-sandbox/api";
import { cloneJson, numberAt, objectAt } from "../json/json.ts";
import type { ScalePaths } from "../registry/resource-definition.ts";
import { valueAt } from "../registry/selectors.ts";
import { answerValue } from "../request/answer.ts";
import type { ApiResponse } from "../request/api-request.ts";
import { bodyBytes, bodyType, readBody, readJson } from "../request/read-body.ts";
import { type RequestScope, subjectOf } from "../scope/scope.ts";
import type { Written } from "../verbs/create.ts";
import { updateObject } from "../verbs/update.ts";

/** GET, PUT and PATCH of the replica count, seen as an autoscaling/v1 Scale. */
export async function scaleSubresource(scope: RequestScope, verb: string): Promise<ApiResponse> {
  const paths = scope.version.scale;
  if (paths === undefined) throw methodNotAllowed(verb, scope.definition);
  switch (verb) {
    case "get":
      return answerValue(200, scaleOf(await liveObject(scope), paths), scope.format);
    case "update":
      return writeScale(scope, paths, () => readBody(scope.request).value);
    case "patch":
      return writeScale(scope, paths, patchScale(scope));
    default:
      throw methodNotAllowed(verb, scope.definition);
  }
}

async function liveObject(scope: RequestScope): Promise<KubeObject> {
  const row = scope.server.storage.getRow(scope.definition, scope);
  if (row === undefined) throw notFound(subjectOf(scope));
  return scope.server.storage.readAs(scope.definition, scope.version, row);
}

/** The Scale view of an object. */
function scaleOf(object: KubeObject, paths: ScalePaths): JsonObject {
  const { name, namespace, uid, resourceVersion, creationTimestamp } = object.metadata;
  const root = asJson(object);
  const selector = paths.labelSelectorPath === undefined ? undefined : valueAt(root, paths.labelSelectorPath);
  return {
    kind: "Scale",
    apiVersion: "autoscaling/v1",
    metadata: JSON.parse(JSON.stringify({ name, namespace, uid, resourceVersion, creationTimestamp })) as JsonObject,
    spec: { replicas: numberOr(valueAt(root, paths.specReplicasPath)) },
    status: {
      replicas: numberOr(valueAt(root, paths.statusReplicasPath)),
      ...(typeof selector === "string" ? { selector } : {}),
    },
  };
}

function numberOr(value: JsonValue | undefined): number {
  return typeof value === "number" ? value : 0;
}

function patchScale(scope: RequestScope): (live: JsonObject) => JsonValue {
  const { value } = readJson(bodyBytes(scope.request));
  switch (bodyType(scope.request)) {
    case "application/json-patch+json":
      return (live) => jsonPatch(live as never, value);
    case "application/merge-patch+json":
    case "application/strategic-merge-patch+json":
      return (live) => mergePatch(live as never, value as never);
    default:
      throw unsupportedMediaType("scale accepts application/json-patch+json and application/merge-patch+json");
  }
}

async function writeScale(
  scope: RequestScope,
  paths: ScalePaths,
  change: (live: JsonObject) => JsonValue,
): Promise<ApiResponse> {
  let isBlind = true;
  const written = await updateObject(scope, {
    get isBlind() {
      return isBlind;
    },
    next(live) {
      const scale = change(scaleOf(live, paths));
      if (!isJsonObject(scale)) throw badRequest("the object provided is unrecognized (must be of type Scale)");
      const version = objectAt(scale, "metadata")?.["resourceVersion"];
      isBlind = version === undefined || version === "";
      if (!isBlind && version !== live.metadata.resourceVersion)
        throw conflict(
          subjectOf(scope),
          "the object has been modified; please apply your changes to the latest version and try again",
        );
      const replicas = numberAt(objectAt(scale, "spec"), "replicas") ?? 0;
      return withReplicas(live, paths.specReplicasPath, replicas);
    },
  });
  return answerValue(200, scaleOf(await writtenObject(scope, written), paths), scope.format);
}

async function writtenObject(scope: RequestScope, written: Written): Promise<KubeObject> {
  return "object" in written
    ? written.object
    : scope.server.storage.readAs(scope.definition, scope.version, written.row);
}

function withReplicas(live: KubeObject, path: string, replicas: number): KubeObject {
  const object = asObject(cloneJson(asJson(live)));
  const steps = path.split(".").filter((step) => step !== "");
  const last = steps.pop() ?? "replicas";
  let at = asJson(object);
  for (const step of steps) {
    const next = objectAt(at, step) ?? {};
    at[step] = next;
    at = next;
  }
  at[last] = replicas;
  return object;
}
