import {
  ApiError,
  asJson,
  asObject,
  type JsonObject,
  type JsonValue,
  type KubeObject,
  type ManagedFieldsEntry,
} from "@agent-sandbox/api";
import { formatTime } from "../json/format-time.ts";
import type { Schema } from "../schema/schema.ts";
import { FieldSet } from "./field-set.ts";
import { mergeObjects, removeFields } from "./merge-objects.ts";
import { compareObjects, fieldsOf, fieldsOfFresh } from "./object-fields.ts";

/** Who writes, and through what. */
export interface Writer {
  readonly manager: string;
  /** The version the writer speaks. */
  readonly apiVersion: string;
  /** Empty for the object itself. */
  readonly subresource: string;
  readonly nowMs: number;
  readonly schema: Schema;
  /** Whether the kind is one of Kubernetes' own. */
  readonly isBuiltin: boolean;
}

/** An entry of managedFields and its fields, which are parsed at their first use and encoded only when they change. */
class Owner {
  entry: ManagedFieldsEntry;
  #set: FieldSet | undefined;

  constructor(entry: ManagedFieldsEntry, set?: FieldSet) {
    this.entry = entry;
    this.#set = set;
  }

  get set(): FieldSet {
    this.#set ??= FieldSet.parse(this.entry.fieldsV1);
    return this.#set;
  }

  get isEmpty(): boolean {
    const { fieldsV1 } = this.entry;
    return fieldsV1 === undefined || Object.keys(fieldsV1).length === 0 ? this.set.isEmpty : false;
  }

  /** Takes fields away; an owner that loses none keeps its entry as it is. */
  disown(changed: FieldSet): void {
    const { fieldsV1, ...entry } = this.entry;
    if (fieldsV1 !== undefined && !changed.overlaps(fieldsV1)) return;
    this.#set = this.set.difference(changed);
    this.entry = entry;
  }
}

/** More update managers than this are folded into one, as in Kubernetes, so that the list stays bounded. */
const updateManagersMax = 10;

/** Records on a fresh object that its creator owns all of it. */
export function trackCreation(object: KubeObject, { manager, apiVersion, nowMs, schema, isBuiltin }: Writer): void {
  const fieldsV1 = fieldsOfFresh(stripped(object), schema, isBuiltin);
  delete object.metadata.managedFields;
  if (Object.keys(fieldsV1).length === 0) return;
  const time = formatTime(nowMs);
  object.metadata.managedFields = [
    { manager, operation: "Update", apiVersion, time, fieldsType: "FieldsV1", fieldsV1 },
  ];
}

/** Records on `next` who owns what after a plain write. */
export function trackUpdate(live: KubeObject, next: KubeObject, writer: Writer): void {
  const owners = ownersOf(next.metadata.managedFields ?? live.metadata.managedFields);
  const comparison = compareObjects(stripped(live), stripped(next), writer.schema);
  if (comparison.isSame) {
    setEntries(next, owners);
    return;
  }
  const written = comparison.added.union(comparison.modified);
  const changed = written.union(comparison.removed);
  const mine = findOwner(owners, writer, "Update");
  for (const owner of owners) if (owner !== mine) owner.disown(changed);
  const own = (mine?.set ?? new FieldSet()).difference(comparison.removed).union(written);
  putOwner(owners, { writer, operation: "Update", set: own });
  setEntries(next, foldOldOwners(owners));
}

/** Merges an applied configuration into the live object; throws Conflict when another manager owns a changed field. */
export function applyConfiguration(
  live: KubeObject | undefined,
  config: KubeObject,
  writer: Writer & { force: boolean },
): KubeObject {
  const base = live === undefined ? emptyLike(config) : live;
  const owners = ownersOf(base.metadata.managedFields);
  const { metadata, ...rest } = stripped(config);
  const isBare = Object.keys(metadata as JsonObject).length === 0;
  const configFields = fieldsOf((isBare ? rest : { ...rest, metadata }) as JsonObject, writer.schema);
  const mine = findOwner(owners, writer, "Apply");
  const others = owners.filter((owner) => owner !== mine);
  const merged = mergeObjects(asJson(base), configOf(config), writer.schema);
  const owned = others.reduce((all, owner) => all.union(owner.set), configFields);
  const pruned =
    mine === undefined
      ? merged
      : removeFields(merged, writer.schema, { dropped: mine.set.difference(configFields), owned });
  const next = asObject(pruned);
  next.metadata = { ...next.metadata };
  const comparison = compareObjects(stripped(base), stripped(next), writer.schema);
  const written = comparison.added.union(comparison.modified);
  if (!writer.force) refuseConflicts(others, written.difference(lastAppliedFields(base, writer)));
  const changed = written.union(comparison.removed);
  for (const owner of others) owner.disown(changed);
  putOwner(owners, { writer, operation: "Apply", set: configFields });
  setEntries(next, owners);
  syncLastApplied(base, next, config, writer);
  return next;
}

const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration";

/**
 * Fields that kubectl's client-side apply wrote. A user who changes over to `kubectl apply --server-side` owns them
 * from then on without a conflict, as in Kubernetes.
 */
function lastAppliedFields(live: KubeObject, { manager, schema }: Writer): FieldSet {
  const text = live.metadata.annotations?.[lastAppliedAnnotation];
  if (manager !== "kubectl" || text === undefined) return new FieldSet();
  try {
    const { apiVersion: _version, kind: _kind, ...applied } = JSON.parse(text) as JsonObject;
    return fieldsOf(applied, schema);
  } catch {
    return new FieldSet(); // The annotation is the user's to break; then nothing is known of what was applied.
  }
}

/** Keeps kubectl's note of what was applied true, so that client-side apply can be used again. */
function syncLastApplied(live: KubeObject, next: KubeObject, config: KubeObject, { manager }: Writer): void {
  const annotations = next.metadata.annotations;
  if (manager !== "kubectl" || annotations === undefined) return;
  if (live.metadata.annotations?.[lastAppliedAnnotation] === undefined) return;
  const { [lastAppliedAnnotation]: _old, ...others } = config.metadata.annotations ?? {};
  const { annotations: _annotations, resourceVersion: _version, ...metadata } = config.metadata;
  const noted = Object.keys(others).length === 0 ? metadata : { ...metadata, annotations: others };
  const text = JSON.stringify(sortedKeys(asJson({ ...config, metadata: noted })));
  next.metadata.annotations = { ...annotations, [lastAppliedAnnotation]: `${text}\n` };
}

function sortedKeys(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(sortedKeys);
  if (typeof value !== "object" || value === null) return value;
  const keys = Object.keys(value).sort();
  return Object.fromEntries(keys.map((key) => [key, sortedKeys(value[key] ?? null)]));
}

function refuseConflicts(others: readonly Owner[], written: FieldSet): void {
  const causes: { reason: string; message: string; field: string }[] = [];
  const sentences: string[] = [];
  for (const owner of others) {
    const paths = owner.set.intersection(written).paths();
    if (paths.length === 0) continue;
    const who = conflictTitle(owner.entry);
    for (const field of paths) causes.push({ reason: "FieldManagerConflict", message: `conflict with ${who}`, field });
    sentences.push(
      paths.length === 1
        ? `conflict with ${who}: ${paths[0] ?? ""}`
        : `conflicts with ${who}:\n- ${paths.join("\n- ")}`,
    );
  }
  if (causes.length === 0) return;
  const count = causes.length === 1 ? "1 conflict" : `${causes.length} conflicts`;
  throw new ApiError("Conflict", `Apply failed with ${count}: ${sentences.join("\n")}`, { details: { causes } });
}

function conflictTitle(entry: ManagedFieldsEntry): string {
  const manager = JSON.stringify(entry.manager ?? "");
  const subresource = entry.subresource === undefined ? "" : ` with subresource ${JSON.stringify(entry.subresource)}`;
  if (entry.operation === "Apply") return `${manager}${subresource}`;
  return `${manager}${subresource} using ${entry.apiVersion ?? ""}${entry.time === undefined ? "" : ` at ${entry.time}`}`;
}

function ownersOf(entries: readonly ManagedFieldsEntry[] | undefined): Owner[] {
  return (entries ?? []).map((entry) => new Owner(entry));
}

type Operation = "Apply" | "Update";

function findOwner(owners: readonly Owner[], writer: Writer, operation: Operation): Owner | undefined {
  return owners.find(
    ({ entry }) =>
      entry.manager === writer.manager &&
      entry.operation === operation &&
      (entry.subresource ?? "") === writer.subresource &&
      (operation === "Apply" || entry.apiVersion === writer.apiVersion),
  );
}

interface OwnerChange {
  readonly writer: Writer;
  readonly operation: Operation;
  readonly set: FieldSet;
}

/** Puts the writer's entry in place; its time changes only with its fields. */
function putOwner(owners: Owner[], { writer, operation, set }: OwnerChange): void {
  const existing = findOwner(owners, writer, operation);
  const isSame = existing?.set.equals(set) === true;
  const entry: ManagedFieldsEntry = {
    manager: writer.manager,
    operation,
    apiVersion: writer.apiVersion,
    time: (isSame ? existing.entry.time : undefined) ?? formatTime(writer.nowMs),
    fieldsType: "FieldsV1",
    ...(writer.subresource === "" ? {} : { subresource: writer.subresource }),
  };
  if (existing === undefined) owners.push(new Owner(entry, set));
  else owners[owners.indexOf(existing)] = new Owner(entry, set);
}

function foldOldOwners(owners: Owner[]): Owner[] {
  const updates = owners.filter(({ entry }) => entry.operation === "Update" && (entry.subresource ?? "") === "");
  if (updates.length <= updateManagersMax) return owners;
  const byAge = updates.sort((a, b) => (a.entry.time ?? "").localeCompare(b.entry.time ?? ""));
  const folded = byAge.slice(0, updates.length - updateManagersMax + 1);
  const set = folded.reduce((all, owner) => all.union(owner.set), new FieldSet());
  const [first] = folded;
  if (first === undefined) return owners;
  const rest = owners.filter((owner) => !folded.includes(owner));
  const { fieldsV1: _fields, ...entry } = first.entry;
  return [new Owner({ ...entry, manager: "ancient-changes" }, set), ...rest];
}

function setEntries(object: KubeObject, owners: readonly Owner[]): void {
  const entries = owners.filter((owner) => !owner.isEmpty);
  if (entries.length === 0) delete object.metadata.managedFields;
  else {
    object.metadata.managedFields = entries.map((owner) => {
      const { entry } = owner;
      if (entry.fieldsV1 !== undefined) return entry;
      const { fieldsV1: _old, subresource, ...rest } = entry;
      return { ...rest, fieldsV1: owner.set.toFields(), ...(subresource === undefined ? {} : { subresource }) };
    });
  }
}

const untrackedMeta = new Set([
  "name",
  "namespace",
  "uid",
  "resourceVersion",
  "generation",
  "creationTimestamp",
  "selfLink",
  "managedFields",
  "deletionTimestamp",
  "deletionGracePeriodSeconds",
]);

/** The part of an object whose ownership is tracked. */
function stripped(object: KubeObject): JsonObject {
  const { apiVersion: _version, kind: _kind, metadata: _metadata, ...rest } = asJson(object);
  const kept: JsonObject = {};
  const metadata: JsonObject = object.metadata;
  for (const key of Object.keys(metadata)) if (!untrackedMeta.has(key)) kept[key] = metadata[key];
  rest["metadata"] = kept;
  return rest;
}

/** What of an applied configuration is merged: all but what the server alone decides. */
function configOf(config: KubeObject): JsonObject {
  const { managedFields: _fields, uid: _uid, resourceVersion: _version, ...metadata } = config.metadata;
  return { ...asJson(config), metadata };
}

function emptyLike({ apiVersion, kind, metadata }: KubeObject): KubeObject {
  const { name, namespace } = metadata;
  return { apiVersion, kind, metadata: { name, ...(namespace === undefined ? {} : { namespace }) } };
}
