import { asJson } from "@agent-sandbox/api";
import { crdStrategy } from "../crd/crd-strategy.ts";
import { listAt, objectAt } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { invalid } from "../schema/field-error.ts";
import { configMapStrategy, secretStrategy } from "./config.ts";
import { eventStrategy } from "./event.ts";
import { limitRangeStrategy, quotaStrategy } from "./limits.ts";
import { namespaceStrategy } from "./namespace.ts";
import { networkPolicyStrategy } from "./network-policy.ts";
import { podStrategy } from "./pod.ts";
import { bindingStrategy, roleStrategy } from "./rbac.ts";
import { serviceStrategy } from "./service.ts";
import { claimStrategy, volumeStrategy } from "./volumes.ts";

const nodeStrategy: Strategy = {
  returnsDeleted: false,
  applyDefaults(object) {
    asJson(object)["spec"] ??= {};
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

const storageClassStrategy: Strategy = {
  createsOnUpdate: false,
  applyDefaults(object) {
    asJson(object)["reclaimPolicy"] ??= "Delete";
    asJson(object)["volumeBindingMode"] ??= "Immediate";
  },
};

const leaseStrategy: Strategy = {
  createsOnUpdate: true,
  validate(object) {
    const spec = objectAt(asJson(object), "spec");
    const duration = spec?.["leaseDurationSeconds"];
    const transitions = spec?.["leaseTransitions"];
    return [
      ...(typeof duration === "number" && duration <= 0
        ? [invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")]
        : []),
      ...(typeof transitions === "number" && transitions < 0
        ? [invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")]
        : []),
    ];
  },
};

const priorityClassStrategy: Strategy = {
  hasGeneration: true,
  applyDefaults(object) {
    asJson(object)["preemptionPolicy"] ??= "PreemptLowerPriority";
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
  "/resourcequotas": quotaStrategy,
  "/limitranges": limitRangeStrategy,
  "/events": eventStrategy,
  "events.k8s.io/events": eventStrategy,
  "coordination.k8s.io/leases": leaseStrategy,
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
