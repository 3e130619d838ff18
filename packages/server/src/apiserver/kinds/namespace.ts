import { asJson, type KubeObject } from "@agent-sandbox/api";
import { listAt, objectAt } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";

/** The finalizer that namespace deletion removes once the namespace is empty. */
const namespaceFinalizer = "kubernetes";

/** Namespaces: a label with their name, a phase, and content that must go first. */
export const namespaceStrategy: Strategy = {
  nameRule: "label",
  returnsDeleted: true,
  applyDefaults(object) {
    object.metadata.labels = { ...object.metadata.labels, "kubernetes.io/metadata.name": object.metadata.name ?? "" };
  },
  prepareCreate(object) {
    const spec = objectAt(asJson(object), "spec") ?? {};
    asJson(object)["spec"] = { ...spec, finalizers: [...new Set([...listAt(spec, "finalizers"), namespaceFinalizer])] };
    asJson(object)["status"] = { phase: "Active" };
  },
  prepareUpdate(object, old, { subresource }) {
    // Only the finalize subresource may take spec.finalizers away.
    if (subresource === "finalize") return;
    const finalizers = objectAt(asJson(old), "spec")?.["finalizers"];
    asJson(object)["spec"] = {
      ...objectAt(asJson(object), "spec"),
      ...(finalizers === undefined ? {} : { finalizers }),
    };
  },
  holdsDeletion: hasFinalizers,
  markDeletion(object) {
    asJson(object)["status"] = { ...objectAt(asJson(object), "status"), phase: "Terminating" };
  },
  selectableFields(object) {
    const phase = objectAt(asJson(object), "status")?.["phase"];
    return { "status.phase": typeof phase === "string" ? phase : "" };
  },
};

function hasFinalizers(object: KubeObject): boolean {
  return listAt(objectAt(asJson(object), "spec"), "finalizers").length > 0;
}
