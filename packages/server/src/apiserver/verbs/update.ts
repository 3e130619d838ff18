import {
  asJson,
  asObject,
  badRequest,
  conflict,
  type JsonObject,
  jsonEqual,
  type KubeObject,
  modified,
  notFound,
} from "@agent-sandbox/api";
import { trackUpdate } from "../apply/field-manager.ts";
import { cloneJson } from "../json/json.ts";
import type { ApiResponse } from "../request/api-request.ts";
import { applyDefaults } from "../schema/apply-defaults.ts";
import { invalidObject } from "../schema/field-error.ts";
import { type RequestScope, subjectOf } from "../scope/scope.ts";
import { isStoreConflict, type StoredObject } from "../storage/object-storage.ts";
import { admit } from "./admission-chain.ts";
import { answerWrite, createObject, trackCreate, type Written, writerOf } from "./create.ts";
import { decodeObject } from "./decode-object.ts";
import { requireCreate } from "./require-create.ts";
import { strategyContext } from "./strategy-context.ts";
import { validateObject } from "./validate-object.ts";

/** Tries of a write that does not depend on the state it replaces, before the lost race is answered as Conflict. */
export const updateAttemptsMax = 5;

/** PUT of one object or of its status. */
export async function updateVerb(scope: RequestScope): Promise<ApiResponse> {
  const object = decodeObject(scope);
  const name = object.metadata.name;
  if (name === undefined || name === "") object.metadata.name = scope.name;
  else if (name !== scope.name) {
    throw badRequest(`the name of the object (${name}) does not match the name on the URL (${scope.name})`);
  }
  const stored = scope.server.storage.get(scope.definition, scope);
  if (stored === undefined && scope.definition.strategy.createsOnUpdate === true && scope.subresource === "") {
    requireCreate(scope);
    return answerWrite(scope, 201, await createObject(scope, object, trackCreate(scope)));
  }
  checkVersionGiven(scope, object);
  const isBlind = (object.metadata.resourceVersion ?? "") === "";
  const written = await updateObject(scope, { isBlind, next: () => asObject(cloneJson(asJson(object))) });
  return answerWrite(scope, 200, written);
}

function checkVersionGiven(scope: RequestScope, object: KubeObject): void {
  const { definition } = scope;
  const isRequired = definition.custom !== undefined || definition.strategy.requiresResourceVersion === true;
  if (!isRequired || (object.metadata.resourceVersion ?? "") !== "") return;
  throw invalidObject(
    {
      group: definition.group,
      kind: definition.custom === undefined ? definition.kind : definition.resource,
      name: scope.name,
    },
    [
      {
        type: "FieldValueInvalid",
        field: "metadata.resourceVersion",
        body: "Invalid value: 0: must be specified for an update",
      },
    ],
  );
}

/** How to get from the live object to the next one. */
export interface Change {
  /** Whether a lost race is simply tried again on the fresh state. */
  readonly isBlind: boolean;
  /** The next object in the request's version, made from the live one; has the kind's shape. */
  next(live: KubeObject): KubeObject | Promise<KubeObject>;
  /** Ownership of fields; default is that of a plain update. */
  track?(live: KubeObject, next: KubeObject): void;
}

/** Changes a stored object under optimistic concurrency; throws NotFound or Conflict. */
export async function updateObject(scope: RequestScope, change: Change): Promise<Written> {
  for (let attempt = 1; ; attempt++) {
    const stored = scope.server.storage.get(scope.definition, scope);
    if (stored === undefined) throw notFound(subjectOf(scope));
    try {
      return await updateOnce(scope, stored, change);
    } catch (error) {
      if (!isStoreConflict(error)) throw error;
      if (!change.isBlind || attempt >= updateAttemptsMax) throw modified(subjectOf(scope));
    }
  }
}

async function updateOnce(scope: RequestScope, stored: StoredObject, change: Change): Promise<Written> {
  const { definition, version, server } = scope;
  const live = await server.storage.codec.convert(definition, stored.object, version.name);
  const next = await change.next(live);
  checkPreconditions(scope, next, live);
  carryOver(scope, next, live);
  const context = strategyContext(scope);
  if (definition.custom !== undefined) applyDefaults(asJson(next), version.schema);
  definition.strategy.applyDefaults?.(next, context);
  // Ownership is that of what the client sent, not of what admission and the kind itself add.
  if (change.track === undefined) trackUpdate(live, next, writerOf(scope));
  else change.track(live, next);
  const admission = admit(scope, { verb: "update", object: next, oldObject: live });
  if (await admission.mutate()) definition.strategy.applyDefaults?.(next, context);
  definition.strategy.prepareUpdate?.(next, live, context);
  bumpGeneration(scope, next, live);
  validateObject(scope, next, live);
  await admission.validate();
  return storeUpdate(scope, { next, live, stored });
}

function checkPreconditions(scope: RequestScope, next: KubeObject, live: KubeObject): void {
  const version = next.metadata.resourceVersion ?? "";
  if (version !== "" && version !== live.metadata.resourceVersion) throw modified(subjectOf(scope));
  const uid = next.metadata.uid ?? "";
  if (uid !== "" && uid !== live.metadata.uid) {
    throw conflict(
      subjectOf(scope),
      `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${live.metadata.uid ?? ""}`,
    );
  }
}

/** Restores what an update through this subresource may not touch. */
function carryOver(scope: RequestScope, next: KubeObject, live: KubeObject): void {
  const { definition, version } = scope;
  const kept = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] as const;
  for (const key of kept) {
    delete next.metadata[key];
    if (live.metadata[key] !== undefined) Object.assign(next.metadata, { [key]: live.metadata[key] });
  }
  delete next.metadata.selfLink;
  next.metadata.resourceVersion = live.metadata.resourceVersion ?? "";
  if (definition.namespaced) next.metadata.namespace = scope.namespace;
  if (live.metadata.generateName !== undefined) next.metadata.generateName ??= live.metadata.generateName;
  next.metadata.managedFields ??= live.metadata.managedFields ?? [];
  if (scope.subresource === "status") keepOnlyStatus(scope, next, live);
  else if (version.hasStatus && scope.subresource === "") restoreField(asJson(next), asJson(live), "status");
}

function keepOnlyStatus(scope: RequestScope, next: KubeObject, live: KubeObject): void {
  for (const key of new Set([...Object.keys(next), ...Object.keys(live)])) {
    if (key !== "status" && key !== "metadata") restoreField(asJson(next), asJson(live), key);
  }
  if (scope.definition.custom !== undefined) {
    const managedFields = next.metadata.managedFields ?? [];
    next.metadata = { ...live.metadata, managedFields };
    return;
  }
  restoreField(next.metadata, live.metadata, "ownerReferences");
  restoreField(next.metadata, live.metadata, "finalizers");
}

function restoreField(next: JsonObject, live: JsonObject, key: string): void {
  if (live[key] === undefined) delete next[key];
  else Object.assign(next, { [key]: live[key] });
}

function bumpGeneration(scope: RequestScope, next: KubeObject, live: KubeObject): void {
  const { definition, version } = scope;
  if (definition.custom === undefined && definition.strategy.hasGeneration !== true) return;
  const ignored = new Set(["metadata", "apiVersion", "kind", ...(version.hasStatus ? ["status"] : [])]);
  const keys = new Set([...Object.keys(next), ...Object.keys(live)]);
  const isChanged = [...keys].some((key) => !ignored.has(key) && !jsonEqual(asJson(next)[key], asJson(live)[key]));
  if (isChanged) next.metadata.generation = (live.metadata.generation ?? 0) + 1;
}

interface Update {
  readonly next: KubeObject;
  readonly live: KubeObject;
  readonly stored: StoredObject;
}

async function storeUpdate(scope: RequestScope, { next, live, stored }: Update): Promise<Written> {
  if (next.metadata.managedFields?.length === 0) delete next.metadata.managedFields;
  if (isSameObject(next, live)) return { row: stored.row };
  if (scope.dryRun) return { object: next };
  return {
    row: await scope.server.storage.write(scope.definition, {
      object: next,
      expectedRevision: stored.row.revision,
      remove: isFinished(scope, next),
    }),
  };
}

/** Equal in all but the times of managedFields: such a write keeps the resourceVersion. */
function isSameObject(next: KubeObject, live: KubeObject): boolean {
  const { managedFields: fresh, ...nextMeta } = next.metadata;
  const { managedFields: old, ...liveMeta } = live.metadata;
  if (!jsonEqual({ ...asJson(next), metadata: nextMeta }, { ...asJson(live), metadata: liveMeta })) return false;
  const timeless = (entries: typeof old) => (entries ?? []).map(({ time: _time, ...rest }) => rest);
  return jsonEqual(timeless(fresh), timeless(old));
}

/** A deleted object goes away with its last finalizer, once no grace period is left. */
function isFinished(scope: RequestScope, object: KubeObject): boolean {
  const { metadata } = object;
  return (
    metadata.deletionTimestamp !== undefined &&
    scope.definition.strategy.holdsDeletion?.(object) !== true &&
    (metadata.finalizers ?? []).length === 0 &&
    (metadata.deletionGracePeriodSeconds ?? 0) === 0
  );
}
