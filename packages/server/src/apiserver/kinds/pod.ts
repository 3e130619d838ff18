import { asJson, isJsonObject, type JsonObject, type KubeObject } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { applyPodDefaults } from "./pod-defaults.ts";
import { validatePodSpec, validatePodUpdate } from "./pod-validation.ts";

/** Pods: Kubernetes' defaults, a pending status, a spec that is fixed for life, and a grace period. */
export const podStrategy: Strategy = {
  hasGeneration: true,
  returnsDeleted: true,
  applyDefaults(object) {
    const spec = objectAt(asJson(object), "spec");
    if (spec !== undefined) applyPodDefaults(spec);
    for (const condition of listAt(objectAt(asJson(object), "status"), "conditions").filter(isJsonObject)) {
      condition["lastProbeTime"] ??= null;
      condition["lastTransitionTime"] ??= null;
    }
  },
  prepareCreate(object) {
    const status = { phase: "Pending", qosClass: qosClassOf(objectAt(asJson(object), "spec") ?? {}) };
    asJson(object)["status"] = status;
  },
  prepareUpdate(object, old, { subresource }) {
    if (subresource !== "status") return;
    const before = objectAt(asJson(old), "status");
    const status = objectAt(asJson(object), "status");
    if (status !== undefined && before?.["qosClass"] !== undefined) status["qosClass"] ??= before["qosClass"];
  },
  validate: (object) => validatePodSpec(objectAt(asJson(object), "spec") ?? {}),
  validateUpdate: (object, old) =>
    validatePodUpdate(objectAt(asJson(object), "spec") ?? {}, objectAt(asJson(old), "spec") ?? {}),
  selectableFields(object) {
    const spec = objectAt(asJson(object), "spec");
    const status = objectAt(asJson(object), "status");
    return {
      "spec.nodeName": stringAt(spec, "nodeName") ?? "",
      "spec.restartPolicy": stringAt(spec, "restartPolicy") ?? "",
      "spec.schedulerName": stringAt(spec, "schedulerName") ?? "",
      "spec.serviceAccountName": stringAt(spec, "serviceAccountName") ?? "",
      "spec.hostNetwork": String(spec?.["hostNetwork"] === true),
      "status.phase": stringAt(status, "phase") ?? "",
      "status.podIP": stringAt(status, "podIP") ?? "",
      "status.nominatedNodeName": stringAt(status, "nominatedNodeName") ?? "",
    };
  },
  gracePeriodSeconds: podGrace,
};

/** A pod that no node runs, or that has ended, needs no grace. */
function podGrace(object: KubeObject, requested: number | undefined): number {
  const spec = objectAt(asJson(object), "spec");
  const phase = stringAt(objectAt(asJson(object), "status"), "phase");
  if ((stringAt(spec, "nodeName") ?? "") === "" || phase === "Succeeded" || phase === "Failed") return 0;
  if (requested !== undefined) return Math.max(0, requested);
  const own = spec?.["terminationGracePeriodSeconds"];
  return typeof own === "number" ? Math.max(1, own) : 30;
}

/** The quality-of-service class that requests and limits of all containers give. */
function qosClassOf(spec: JsonObject): string {
  const containers = [...listAt(spec, "containers"), ...listAt(spec, "initContainers")].filter(isJsonObject);
  const amounts = containers.map((container) => {
    const resources = objectAt(container, "resources");
    return { requests: objectAt(resources, "requests") ?? {}, limits: objectAt(resources, "limits") ?? {} };
  });
  const names = ["cpu", "memory"];
  const isNothing = amounts.every(({ requests, limits }) =>
    names.every((n) => requests[n] === undefined && limits[n] === undefined),
  );
  if (isNothing) return "BestEffort";
  const isFull = amounts.every(({ requests, limits }) =>
    names.every((n) => limits[n] !== undefined && requests[n] === limits[n]),
  );
  return isFull ? "Guaranteed" : "Burstable";
}
