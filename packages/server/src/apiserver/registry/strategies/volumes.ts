import { isJsonObject, jsonEqual, listAt, objectAt } from "../../json/json.ts";
import { type ApiObject, asJson } from "../../object.ts";
import { type FieldError, forbiddenField, required } from "../../schema/field-error.ts";
import type { Strategy } from "../resource-definition.ts";

/** PersistentVolumeClaims: what they ask for is fixed once written; only the size may grow. */
export const claimStrategy: Strategy = {
  returnsDeleted: true,
  applyDefaults(object) {
    const spec = objectAt(asJson(object), "spec");
    if (spec !== undefined) spec["volumeMode"] ??= "Filesystem";
    object["status"] ??= { phase: "Pending" };
  },
  prepareCreate(object) {
    object["status"] = { phase: "Pending" };
  },
  validate(object) {
    const spec = objectAt(asJson(object), "spec");
    const errors: FieldError[] = [];
    if (listAt(spec, "accessModes").length === 0)
      errors.push(required("spec.accessModes", "at least 1 access mode is required"));
    if (objectAt(objectAt(spec, "resources"), "requests")?.["storage"] === undefined)
      errors.push(required("spec.resources[storage]"));
    return errors;
  },
  validateUpdate(object, old) {
    if (jsonEqual(fixedPart(object), fixedPart(old))) return [];
    return [
      forbiddenField(
        "spec",
        "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
      ),
    ];
  },
};

function fixedPart(object: ApiObject): Record<string, never> | undefined {
  const spec = objectAt(asJson(object), "spec");
  if (spec === undefined) return undefined;
  const { resources: _resources, volumeName: _volume, volumeAttributesClassName: _class, ...rest } = spec;
  return rest as Record<string, never>;
}

/** PersistentVolumes: defaults and the phase a fresh volume has. */
export const volumeStrategy: Strategy = {
  returnsDeleted: true,
  applyDefaults(object) {
    const spec = objectAt(asJson(object), "spec");
    if (!isJsonObject(spec)) return;
    spec["persistentVolumeReclaimPolicy"] ??= "Retain";
    spec["volumeMode"] ??= "Filesystem";
  },
  prepareCreate(object) {
    object["status"] = { phase: "Pending" };
  },
};
