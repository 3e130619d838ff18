import { conflict, type KubeObject, modified, notFound } from "@agent-sandbox/api";
import { formatTime } from "../json/format-time.ts";
import { answerValue } from "../request/answer.ts";
import type { ApiResponse } from "../request/api-request.ts";
import { type RequestScope, subjectOf } from "../scope/scope.ts";
import { isStoreConflict, type StoredObject } from "../storage/object-storage.ts";
import { admit } from "./admission-chain.ts";
import { answerWrite, type Written } from "./create.ts";
import { type DeleteOptions, readDeleteOptions } from "./delete-options.ts";
import { updateAttemptsMax } from "./update.ts";

/** DELETE of one object. */
export async function deleteVerb(scope: RequestScope): Promise<ApiResponse> {
  const deleted = await deleteObject(scope, readDeleteOptions(scope));
  if (!deleted.isGone || scope.definition.strategy.returnsDeleted === true)
    return answerWrite(scope, 200, deleted.written);
  const { group, resource } = scope.definition;
  const details = { name: scope.name, ...(group === "" ? {} : { group }), kind: resource, uid: deleted.uid };
  return answerValue(200, { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success", details });
}

/** What a delete led to: gone, or marked and waiting for finalizers or the grace period. */
export interface Deleted {
  readonly isGone: boolean;
  readonly uid: string;
  readonly written: Written;
}

/** Deletes an object as its finalizers, grace period and the options allow; throws NotFound or Conflict. */
export async function deleteObject(scope: RequestScope, options: DeleteOptions): Promise<Deleted> {
  for (let attempt = 1; ; attempt++) {
    const stored = scope.server.storage.get(scope.definition, scope);
    if (stored === undefined) throw notFound(subjectOf(scope));
    checkDeletePreconditions(scope, stored.object, options);
    await admit(scope, { verb: "delete", object: undefined, oldObject: stored.object }).validate();
    try {
      return await deleteOnce(scope, stored, options);
    } catch (error) {
      if (!isStoreConflict(error)) throw error;
      if (attempt >= updateAttemptsMax) throw modified(subjectOf(scope));
    }
  }
}

function checkDeletePreconditions(scope: RequestScope, { metadata }: KubeObject, options: DeleteOptions): void {
  if (options.uid !== undefined && options.uid !== metadata.uid) {
    throw conflict(
      subjectOf(scope),
      `Precondition failed: UID in precondition: ${options.uid}, UID in object meta: ${metadata.uid ?? ""}`,
    );
  }
  if (options.resourceVersion !== undefined && options.resourceVersion !== metadata.resourceVersion) {
    throw conflict(
      subjectOf(scope),
      `Precondition failed: ResourceVersion in precondition: ${options.resourceVersion}, ResourceVersion in object meta: ${metadata.resourceVersion ?? ""}`,
    );
  }
}

async function deleteOnce(scope: RequestScope, stored: StoredObject, options: DeleteOptions): Promise<Deleted> {
  const next = planDelete(scope, stored.object, options);
  const uid = stored.object.metadata.uid ?? "";
  if (next === "unchanged") return { isGone: false, uid, written: { row: stored.row } };
  const isGone = next === "remove";
  const object = isGone ? lastState(scope, stored.object) : next;
  if (options.dryRun) return { isGone, uid, written: { object } };
  const row = await scope.server.storage.write(scope.definition, {
    object,
    expectedRevision: stored.row.revision,
    remove: isGone,
    ...(object === stored.object && { bytes: stored.row.value }),
  });
  return { isGone, uid, written: { row } };
}

/** What is shown of an object that goes at once: kinds with a grace period say that it was none. */
function lastState({ definition, nowMs }: RequestScope, live: KubeObject): KubeObject {
  if (definition.strategy.gracePeriodSeconds === undefined) return live;
  const deletionTimestamp = live.metadata.deletionTimestamp ?? formatTime(nowMs);
  return { ...live, metadata: { ...live.metadata, deletionTimestamp, deletionGracePeriodSeconds: 0 } };
}

const propagationFinalizers = { Orphan: "orphan", Foreground: "foregroundDeletion" } as const;

/** Decides what a delete does: remove the row, mark it, or nothing because it is marked already. */
function planDelete(
  scope: RequestScope,
  live: KubeObject,
  options: DeleteOptions,
): KubeObject | "remove" | "unchanged" {
  const { strategy } = scope.definition;
  const finalizers = finalizersAfter(live, options.propagationPolicy);
  const graceSeconds = strategy.gracePeriodSeconds?.(live, options.gracePeriodSeconds) ?? 0;
  const mustWait = finalizers.length > 0 || strategy.holdsDeletion?.(live) === true || graceSeconds > 0;
  if (!mustWait) return "remove";
  const isMarked = live.metadata.deletionTimestamp !== undefined;
  const shortens = isMarked && graceSeconds < (live.metadata.deletionGracePeriodSeconds ?? 0);
  const sameFinalizers = finalizers.length === (live.metadata.finalizers ?? []).length;
  if (isMarked && !shortens && sameFinalizers) return "unchanged";
  const metadata = { ...live.metadata, finalizers };
  if (finalizers.length === 0) delete (metadata as { finalizers?: string[] }).finalizers;
  if (!isMarked || shortens) {
    metadata.deletionTimestamp = formatTime(scope.nowMs + graceSeconds * 1000);
    metadata.deletionGracePeriodSeconds = graceSeconds;
  }
  if (!isMarked && metadata.generation !== undefined) metadata.generation += 1;
  const marked = { ...live, metadata };
  strategy.markDeletion?.(marked);
  return marked;
}

function finalizersAfter(live: KubeObject, policy: DeleteOptions["propagationPolicy"]): string[] {
  const present = live.metadata.finalizers ?? [];
  if (policy === undefined) return present;
  const others = present.filter((finalizer) => finalizer !== "orphan" && finalizer !== "foregroundDeletion");
  return policy === "Background" ? others : [...others, propagationFinalizers[policy]];
}
