import {
  ApiError,
  alreadyExists,
  apiVersionOf,
  asJson,
  badRequest,
  type KubeObject,
  type ObjectMeta,
} from "@agent-sandbox/api";
import type { Row } from "../../store/store.ts";
import { trackCreation, type Writer } from "../apply/field-manager.ts";
import { formatTime } from "../json/format-time.ts";
import { answerBytes, answerValue } from "../request/answer.ts";
import type { ApiResponse } from "../request/api-request.ts";
import { applyDefaults } from "../schema/apply-defaults.ts";
import { fieldManagerOf, type RequestScope, subjectOf } from "../scope/scope.ts";
import { isStoreConflict } from "../storage/object-storage.ts";
import { admit } from "./admission-chain.ts";
import { decodeObject } from "./decode-object.ts";
import { strategyContext } from "./strategy-context.ts";
import { validateObject } from "./validate-object.ts";

/** Names tried for generateName before AlreadyExists is answered, as in Kubernetes. */
const generateAttemptsMax = 8;

/** POST of one object. */
export async function createVerb(scope: RequestScope): Promise<ApiResponse> {
  const object = decodeObject(scope);
  return answerWrite(scope, 201, await createObject(scope, object, trackCreate(scope)));
}

/** What was written: a row, or the object that would have been written (dry run). */
export type Written = { readonly row: Row } | { readonly object: KubeObject };

/** Answers a write with the object in the version and shape asked for. */
export async function answerWrite(scope: RequestScope, status: number, written: Written): Promise<ApiResponse> {
  if ("object" in written) return answerValue(status, written.object, scope.format);
  const { storage } = scope.server;
  if (scope.format.encoding === "yaml") {
    return answerValue(status, await storage.readAs(scope.definition, scope.version, written.row), scope.format);
  }
  return answerBytes(status, [await storage.render(scope.definition, scope.version, written.row)]);
}

/** Records ownership of a plain create. */
export function trackCreate(scope: RequestScope): (object: KubeObject) => void {
  return (object) => {
    trackCreation(object, writerOf(scope));
  };
}

/** Who writes, for ownership of fields. */
export function writerOf(scope: RequestScope): Writer {
  return {
    manager: fieldManagerOf(scope),
    apiVersion: apiVersionOf({ group: scope.definition.group, version: scope.version.name }),
    subresource: scope.subresource,
    nowMs: scope.nowMs,
    schema: scope.version.schema,
    isBuiltin: scope.definition.custom === undefined,
  };
}

/** Runs an object through defaults, admission and validation and stores it. Precondition: the object has its shape. */
export async function createObject(
  scope: RequestScope,
  object: KubeObject,
  track: (object: KubeObject) => void,
): Promise<Written> {
  checkNames(scope, object);
  const base = object.metadata.name === undefined ? object.metadata.generateName : undefined;
  for (let attempt = 1; ; attempt++) {
    if (base !== undefined && base !== "") object.metadata.name = base.slice(0, 58) + scope.server.ids.nameSuffix();
    if (attempt === 1) await prepareCreate(scope, object, track);
    try {
      return await store(scope, object);
    } catch (error) {
      if (!isStoreConflict(error)) throw error;
      if (base === undefined || attempt >= generateAttemptsMax) throw exists(scope, object);
    }
  }
}

function exists(scope: RequestScope, object: KubeObject): ApiError {
  const subject = subjectOf(scope, object.metadata.name ?? "");
  const row = scope.server.storage.get(scope.definition, { namespace: scope.namespace, name: subject.name });
  if (row?.object.metadata.deletionTimestamp === undefined) return alreadyExists(subject);
  return new ApiError("AlreadyExists", `object is being deleted: ${alreadyExists(subject).message}`, {
    details: alreadyExists(subject).details ?? {},
  });
}

function checkNames(scope: RequestScope, object: KubeObject): void {
  const { metadata } = object;
  if (scope.definition.namespaced) {
    if (metadata.namespace !== undefined && metadata.namespace !== "" && metadata.namespace !== scope.namespace) {
      throw badRequest("the namespace of the provided object does not match the namespace sent on the request");
    }
    metadata.namespace = scope.namespace;
  } else delete metadata.namespace;
  const draft: Partial<ObjectMeta> = metadata;
  if (draft.name === "") delete draft.name;
  if (metadata.resourceVersion !== undefined && metadata.resourceVersion !== "") {
    throw new ApiError("Unknown", "resourceVersion should not be set on objects to be created");
  }
}

async function prepareCreate(
  scope: RequestScope,
  object: KubeObject,
  track: (object: KubeObject) => void,
): Promise<void> {
  const { definition, version } = scope;
  const context = strategyContext(scope);
  stampCreate(scope, object);
  if (definition.custom !== undefined) applyDefaults(asJson(object), version.schema);
  definition.strategy.applyDefaults?.(object, context);
  // Ownership is that of what the client sent, not of what admission and the kind itself add.
  track(object);
  const admission = admit(scope, { verb: "create", object, oldObject: undefined });
  if (await admission.mutate()) definition.strategy.applyDefaults?.(object, context);
  definition.strategy.prepareCreate?.(object, context);
  validateObject(scope, object, undefined);
  await admission.validate();
}

/** Sets what the server alone decides about a fresh object. */
function stampCreate(scope: RequestScope, object: KubeObject): void {
  const { definition, version } = scope;
  const { metadata } = object;
  delete metadata.deletionTimestamp;
  delete metadata.deletionGracePeriodSeconds;
  delete metadata.selfLink;
  delete metadata.resourceVersion;
  metadata.uid = scope.server.ids.uuid();
  metadata.creationTimestamp = formatTime(scope.nowMs);
  if (definition.custom !== undefined || definition.strategy.hasGeneration === true) metadata.generation = 1;
  if (definition.custom !== undefined && version.hasStatus) delete asJson(object)["status"];
}

async function store(scope: RequestScope, object: KubeObject): Promise<Written> {
  const { storage } = scope.server;
  if (scope.dryRun) {
    const name = { namespace: scope.namespace, name: object.metadata.name ?? "" };
    if (storage.getRow(scope.definition, name) !== undefined) throw exists(scope, object);
    return { object };
  }
  return { row: await storage.write(scope.definition, { object, expectedRevision: 0 }) };
}
