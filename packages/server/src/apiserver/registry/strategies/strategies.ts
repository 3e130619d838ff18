import { crdStrategy } from "../../crd/crd-strategy.ts";
import { listAt, objectAt, stringAt } from "../../json/json.ts";
import { asJson } from "../../object.ts";
import type { Strategy } from "../resource-definition.ts";
import { configMapStrategy, secretStrategy } from "./config.ts";
import { namespaceStrategy } from "./namespace.ts";
import { podStrategy } from "./pod.ts";
import { bindingStrategy, roleStrategy } from "./rbac.ts";
import { serviceStrategy } from "./service.ts";
import { claimStrategy, volumeStrategy } from "./volumes.ts";

/** Events go after an hour, as in Kubernetes. */
const eventTimeToLiveMs = 60 * 60 * 1000;

const coreEventStrategy: Strategy = {
  timeToLiveMs: eventTimeToLiveMs,
  createsOnUpdate: true,
  applyDefaults(object) {
    if (object.apiVersion === "v1" && stringAt(asJson(object), "type") === undefined) object["type"] = "Normal";
  },
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

const nodeStrategy: Strategy = {
  returnsDeleted: false,
  applyDefaults(object) {
    object["spec"] ??= {};
  },
  selectableFields(object) {
    return { "spec.unschedulable": String(objectAt(asJson(object), "spec")?.["unschedulable"] === true) };
  },
};

const serviceAccountStrategy: Strategy = { returnsDeleted: true };

const endpointSliceStrategy: Strategy = {
  hasGeneration: true,
  applyDefaults(object) {
    for (const port of listAt(asJson(object), "ports")) {
      if (typeof port !== "object" || port === null || Array.isArray(port)) continue;
      port["protocol"] ??= "TCP";
      port["name"] ??= "";
    }
  },
};

const networkPolicyStrategy: Strategy = {
  hasGeneration: true,
  applyDefaults(object) {
    const spec = objectAt(asJson(object), "spec");
    if (spec === undefined) return;
    spec["podSelector"] ??= {};
    if (spec["policyTypes"] === undefined)
      spec["policyTypes"] = spec["egress"] === undefined ? ["Ingress"] : ["Ingress", "Egress"];
    for (const direction of ["ingress", "egress"]) {
      for (const rule of listAt(spec, direction)) {
        if (typeof rule !== "object" || rule === null || Array.isArray(rule)) continue;
        for (const port of listAt(rule, "ports")) {
          if (typeof port === "object" && port !== null && !Array.isArray(port)) port["protocol"] ??= "TCP";
        }
      }
    }
  },
};

const storageClassStrategy: Strategy = {
  createsOnUpdate: false,
  applyDefaults(object) {
    object["reclaimPolicy"] ??= "Delete";
    object["volumeBindingMode"] ??= "Immediate";
  },
};

const priorityClassStrategy: Strategy = {
  hasGeneration: true,
  applyDefaults(object) {
    object["preemptionPolicy"] ??= "PreemptLowerPriority";
  },
};

const strategies: Readonly<Record<string, Strategy>> = {
  "/pods": podStrategy,
  "/services": serviceStrategy,
  "/namespaces": namespaceStrategy,
  "/nodes": nodeStrategy,
  "/configmaps": configMapStrategy,
  "/secrets": secretStrategy,
  "/serviceaccounts": serviceAccountStrategy,
  "/persistentvolumes": volumeStrategy,
  "/persistentvolumeclaims": claimStrategy,
  "/resourcequotas": { returnsDeleted: true },
  "/events": coreEventStrategy,
  "events.k8s.io/events": coreEventStrategy,
  "coordination.k8s.io/leases": { createsOnUpdate: true },
  "discovery.k8s.io/endpointslices": endpointSliceStrategy,
  "networking.k8s.io/networkpolicies": networkPolicyStrategy,
  "storage.k8s.io/storageclasses": storageClassStrategy,
  "scheduling.k8s.io/priorityclasses": priorityClassStrategy,
  "rbac.authorization.k8s.io/roles": roleStrategy,
  "rbac.authorization.k8s.io/clusterroles": roleStrategy,
  "rbac.authorization.k8s.io/rolebindings": bindingStrategy,
  "rbac.authorization.k8s.io/clusterrolebindings": bindingStrategy,
  "apiextensions.k8s.io/customresourcedefinitions": crdStrategy,
};

/** The rules of a built-in kind; a kind without any of its own has none. */
export function strategyOf(group: string, resource: string): Strategy {
  const key = `${group}/${resource}`;
  return (Object.hasOwn(strategies, key) ? strategies[key] : undefined) ?? {};
}
