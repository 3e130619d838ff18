import {
  type KubeObject,
  type PersistentVolumeClaim,
  type Pod,
  parseQuantity,
  type Quantity,
  type ResourceQuota,
  type Service,
  zeroQuantity,
} from "@agent-sandbox/api";
import { type Amounts, addTo, countOf, podResources } from "./pod-resources.ts";

/** Core resources that quotas also count by their bare name. */
const bareNames = new Set(["pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas"]);

/** What one object uses, under every name a quota may limit it by. */
export function usageOf(group: string, resource: string, object: KubeObject): Amounts {
  const used = new Map<string, Quantity>();
  used.set(group === "" ? `count/${resource}` : `count/${resource}.${group}`, countOf(1));
  if (group !== "") return used;
  switch (resource) {
    case "pods":
      // Finished Pods keep their place in the store, but hold nothing.
      if (!isFinished(object as Pod)) addPod(used, object as Pod);
      return used;
    case "persistentvolumeclaims":
      addClaim(used, object as PersistentVolumeClaim);
      return used;
    case "services":
      addService(used, object as Service);
      return used;
    default:
      if (bareNames.has(resource)) used.set(resource, countOf(1));
      return used;
  }
}

function isFinished({ status }: Pod): boolean {
  return status?.phase === "Succeeded" || status?.phase === "Failed";
}

function addPod(used: Map<string, Quantity>, { spec }: Pod): void {
  used.set("pods", countOf(1));
  if (spec === undefined) return;
  for (const [name, amount] of podResources(spec, "requests")) {
    used.set(`requests.${name}`, amount);
    if (["cpu", "memory", "ephemeral-storage"].includes(name)) used.set(name, amount);
  }
  for (const [name, amount] of podResources(spec, "limits")) used.set(`limits.${name}`, amount);
}

function addClaim(used: Map<string, Quantity>, { spec }: PersistentVolumeClaim): void {
  const storage = parseQuantity(spec?.resources?.requests?.["storage"] ?? "0");
  used.set("persistentvolumeclaims", countOf(1));
  used.set("requests.storage", storage);
  const storageClass = spec?.storageClassName;
  if (storageClass === undefined || storageClass === "") return;
  used.set(`${storageClass}.storageclass.storage.k8s.io/requests.storage`, storage);
  used.set(`${storageClass}.storageclass.storage.k8s.io/persistentvolumeclaims`, countOf(1));
}

function addService(used: Map<string, Quantity>, { spec }: Service): void {
  used.set("services", countOf(1));
  const ports = countOf(spec?.ports?.length ?? 0);
  if (spec?.type === "NodePort" || spec?.type === "LoadBalancer") used.set("services.nodeports", ports);
  if (spec?.type === "LoadBalancer") used.set("services.loadbalancers", countOf(1));
}

/** Whether the quota looks at the object at all. */
export function quotaCovers(quota: ResourceQuota, group: string, resource: string, object: KubeObject): boolean {
  const scopes = [
    ...(quota.spec?.scopes ?? []).map((scopeName) => ({ scopeName, operator: "Exists", values: [] as string[] })),
    ...(quota.spec?.scopeSelector?.matchExpressions ?? []).map((term) => ({ ...term, values: term.values ?? [] })),
  ];
  if (scopes.length === 0) return true;
  if (group !== "" || resource !== "pods") return false;
  return scopes.every((scope) => inScope(object as Pod, scope));
}

function inScope({ spec }: Pod, scope: { scopeName: string; operator: string; values: string[] }): boolean {
  switch (scope.scopeName) {
    case "Terminating":
      return spec?.activeDeadlineSeconds !== undefined;
    case "NotTerminating":
      return spec?.activeDeadlineSeconds === undefined;
    case "BestEffort":
      return spec !== undefined && isBestEffort(spec);
    case "NotBestEffort":
      return spec !== undefined && !isBestEffort(spec);
    case "PriorityClass":
      return inPriorityScope(spec?.priorityClassName ?? "", scope);
    default:
      return false;
  }
}

function inPriorityScope(name: string, { operator, values }: { operator: string; values: string[] }): boolean {
  if (operator === "In") return values.includes(name);
  if (operator === "NotIn") return !values.includes(name);
  return operator === "DoesNotExist" ? name === "" : name !== "";
}

function isBestEffort(spec: NonNullable<Pod["spec"]>): boolean {
  return podResources(spec, "requests").size === 0 && podResources(spec, "limits").size === 0;
}

/** The sum of what objects use of the names that a quota limits; names that nothing uses are zero. */
export function quotaUsed(
  quota: ResourceQuota,
  objects: Iterable<{ group: string; resource: string; object: KubeObject }>,
): Record<string, string> {
  const sum = new Map<string, Quantity>();
  for (const { group, resource, object } of objects) {
    if (quotaCovers(quota, group, resource, object)) addTo(sum, usageOf(group, resource, object));
  }
  return Object.fromEntries(
    Object.keys(quota.spec?.hard ?? {}).map((name) => [name, (sum.get(name) ?? zeroQuantity).toString()]),
  );
}
