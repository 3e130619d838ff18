import { asJson, type JsonObject, type KubeObject, qualifiedNameProblems } from "@agent-sandbox/api";
import { objectAt, stringAt } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { type FieldError, invalid, required } from "../schema/field-error.ts";

/** Events go after an hour, as in Kubernetes. */
const eventTimeToLiveMs = 60 * 60 * 1000;

/** Most characters of the parts that name who did what and why. */
const partMax = 128;
/** Most bytes of the text. */
const noteMaxBytes = 1024;

/** Events of both groups: one stored form, rules by the group they are written through. */
export const eventStrategy: Strategy = {
  timeToLiveMs: eventTimeToLiveMs,
  createsOnUpdate: true,
  applyDefaults(object) {
    if (object.apiVersion === "v1" && stringAt(asJson(object), "type") === undefined) asJson(object)["type"] = "Normal";
  },
  prepareCreate: giveZeros,
  prepareUpdate: giveZeros,
  validate: validateEvent,
  validateCreate: (object) => (object.apiVersion === "v1" ? [] : validateNewEvent(asJson(object))),
  selectableFields(object) {
    const root = asJson(object);
    const about = objectAt(root, "involvedObject") ?? objectAt(root, "regarding");
    const source = objectAt(root, "source") ?? objectAt(root, "deprecatedSource");
    const fields: Record<string, string> = {};
    for (const key of ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"]) {
      fields[`involvedObject.${key}`] = stringAt(about, key) ?? "";
      fields[`regarding.${key}`] = stringAt(about, key) ?? "";
    }
    fields["reason"] = stringAt(root, "reason") ?? "";
    fields["type"] = stringAt(root, "type") ?? "";
    fields["reportingComponent"] = stringAt(root, "reportingComponent") ?? stringAt(source, "component") ?? "";
    fields["source"] = stringAt(source, "component") ?? fields["reportingComponent"] ?? "";
    return fields;
  },
};

/** The fields of an event that Go writes although they are empty. */
function giveZeros(object: KubeObject): void {
  const root = asJson(object);
  const zeros: JsonObject =
    object.apiVersion === "v1"
      ? { eventTime: null, reportingComponent: "", reportingInstance: "", source: {} }
      : { deprecatedSource: {}, deprecatedFirstTimestamp: null, deprecatedLastTimestamp: null };
  for (const [key, zero] of Object.entries(zeros)) root[key] ??= zero;
}

/** An event with a time of its own must say who did what; an older one must be where its object is. */
function validateEvent(object: KubeObject): FieldError[] {
  const root = asJson(object);
  const about = objectAt(root, "involvedObject") ?? objectAt(root, "regarding");
  const namespace = stringAt(about, "namespace") ?? "";
  const own = object.metadata.namespace ?? "";
  const isNew = (stringAt(root, "eventTime") ?? "") !== "";
  const mayBeAnywhere = isNew ? ["default", "kube-system"] : ["", "default"];
  const isMisplaced = namespace === "" ? !mayBeAnywhere.includes(own) : !isNew && namespace !== own;
  const errors = isMisplaced ? [invalid("involvedObject.namespace", namespace, "does not match event.namespace")] : [];
  return isNew ? [...errors, ...validateParts(root, object.apiVersion)] : errors;
}

function validateParts(root: JsonObject, apiVersion: string | undefined): FieldError[] {
  const errors: FieldError[] = [];
  const controllerField = apiVersion === "v1" ? "reportingComponent" : "reportingController";
  const controller = stringAt(root, controllerField) ?? "";
  if (controller === "") errors.push(required(controllerField));
  for (const problem of qualifiedNameProblems(controller)) errors.push(invalid(controllerField, controller, problem));
  for (const field of ["reportingInstance", "action", "reason"]) {
    const text = stringAt(root, field) ?? "";
    if (text === "") errors.push(required(field));
    if (text.length > partMax) errors.push(invalid(field, "", `can have at most ${partMax} characters`));
  }
  const note = stringAt(root, "message") ?? stringAt(root, "note") ?? "";
  if (Buffer.byteLength(note) > noteMaxBytes)
    errors.push(invalid("message", "", `can have at most ${noteMaxBytes} characters`));
  return errors;
}

/** What the newer group demands on top. */
function validateNewEvent(root: JsonObject): FieldError[] {
  const errors: FieldError[] = [];
  if ((stringAt(root, "eventTime") ?? "") === "") errors.push(required("eventTime"));
  const type = stringAt(root, "type") ?? "";
  if (type !== "Normal" && type !== "Warning") errors.push(invalid("type", "", `has invalid value: ${type}`));
  const source = objectAt(root, "deprecatedSource") ?? {};
  const isUnset: readonly (readonly [string, boolean])[] = [
    ["firstTimestamp", !root["deprecatedFirstTimestamp"]],
    ["lastTimestamp", !root["deprecatedLastTimestamp"]],
    ["count", !root["deprecatedCount"]],
    ["source", !source["component"] && !source["host"]],
  ];
  for (const [field, isFine] of isUnset) if (!isFine) errors.push(invalid(field, "", "needs to be unset"));
  return errors;
}
