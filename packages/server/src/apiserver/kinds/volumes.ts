import { asJson, isJsonObject, jsonEqual, type KubeObject } from "@agent-sandbox/api";
import { listAt, objectAt, textOf } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { type FieldError, forbiddenField, invalid, notSupported, required } from "../schema/field-error.ts";
import { amountOf } from "./resource-amounts.ts";

const accessModes = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/** PersistentVolumeClaims: what they ask for is fixed once written; only the size may grow. */
export const claimStrategy: Strategy = {
  returnsDeleted: true,
  applyDefaults(object) {
    const spec = objectAt(asJson(object), "spec");
    if (spec !== undefined) spec["volumeMode"] ??= "Filesystem";
    asJson(object)["status"] ??= { phase: "Pending" };
  },
  prepareCreate(object) {
    asJson(object)["status"] = { phase: "Pending" };
  },
  validate(object) {
    const spec = objectAt(asJson(object), "spec");
    const errors: FieldError[] = [];
    const modes = listAt(spec, "accessModes");
    if (modes.length === 0) errors.push(required("spec.accessModes", "at least 1 access mode is required"));
    for (const mode of modes)
      if (!accessModes.includes(textOf(mode))) errors.push(notSupported("spec.accessModes", mode, accessModes));
    const asked = objectAt(objectAt(spec, "resources"), "requests")?.["storage"];
    const size = amountOf(asked);
    if (asked === undefined) errors.push(required("spec.resources[storage]"));
    else if (size !== undefined && size.nanos <= 0n)
      errors.push(invalid("spec.resources[storage]", size.toString(), "must be greater than zero"));
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

function fixedPart(object: KubeObject): Record<string, never> | undefined {
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
    asJson(object)["status"] = { phase: "Pending" };
  },
};
