import {
  asJson,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  type KubeObject,
  namespacedKey,
} from "@agent-sandbox/api";
import { listAt, objectAt, stringAt, textOf } from "../json/json.ts";
import type { ColumnDefinition } from "./column.ts";
import { ageColumn, nameColumn, textColumn } from "./columns.ts";
import { eventColumns } from "./event-columns.ts";
import { nodeColumns } from "./node-columns.ts";
import { podColumns } from "./pod-columns.ts";
import { serviceColumns } from "./service-columns.ts";

const wide = { wide: true };

function field(name: string, parent: string, key: string, options = {}): ColumnDefinition {
  return textColumn(name, (object) => stringAt(objectAt(asJson(object), parent), key) ?? "", options);
}

function top(name: string, key: string, fallback: JsonValue = ""): ColumnDefinition {
  return textColumn(name, (object) => asJson(object)[key] ?? fallback);
}

function count(object: KubeObject, keys: readonly string[]): number {
  return keys.reduce((sum, key) => sum + Object.keys(objectAt(asJson(object), key) ?? {}).length, 0);
}

const accessModeTexts: Readonly<Record<string, string>> = {
  ReadWriteOnce: "RWO",
  ReadOnlyMany: "ROX",
  ReadWriteMany: "RWX",
  ReadWriteOncePod: "RWOP",
};

function accessModes(holder: JsonObject | undefined): string {
  return listAt(holder, "accessModes")
    .map((mode) => accessModeTexts[textOf(mode)] ?? textOf(mode))
    .join(",");
}

function isTerminating(object: KubeObject): boolean {
  return object.metadata.deletionTimestamp !== undefined;
}

const claimColumns: ColumnDefinition[] = [
  nameColumn,
  textColumn("Status", (object) =>
    isTerminating(object) ? "Terminating" : (stringAt(objectAt(asJson(object), "status"), "phase") ?? ""),
  ),
  field("Volume", "spec", "volumeName"),
  textColumn("Capacity", (object) => {
    const isBound = (stringAt(objectAt(asJson(object), "spec"), "volumeName") ?? "") !== "";
    const capacity = objectAt(objectAt(asJson(object), "status"), "capacity");
    return isBound ? (stringAt(capacity, "storage") ?? "0") : "";
  }),
  textColumn("Access Modes", (object) => {
    const isBound = (stringAt(objectAt(asJson(object), "spec"), "volumeName") ?? "") !== "";
    return isBound ? accessModes(objectAt(asJson(object), "status")) : "";
  }),
  field("StorageClass", "spec", "storageClassName"),
  textColumn(
    "VolumeAttributesClass",
    (object) => stringAt(objectAt(asJson(object), "spec"), "volumeAttributesClassName") ?? "<unset>",
  ),
  ageColumn,
  field("VolumeMode", "spec", "volumeMode", wide),
];

const volumeColumns: ColumnDefinition[] = [
  nameColumn,
  textColumn("Capacity", (object) => stringAt(objectAt(objectAt(asJson(object), "spec"), "capacity"), "storage") ?? ""),
  textColumn("Access Modes", (object) => accessModes(objectAt(asJson(object), "spec"))),
  field("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
  textColumn("Status", (object) =>
    isTerminating(object) ? "Terminating" : (stringAt(objectAt(asJson(object), "status"), "phase") ?? ""),
  ),
  textColumn("Claim", (object) => {
    const claim = objectAt(objectAt(asJson(object), "spec"), "claimRef");
    return claim === undefined ? "" : namespacedKey(stringAt(claim, "namespace"), stringAt(claim, "name") ?? "");
  }),
  field("StorageClass", "spec", "storageClassName"),
  textColumn(
    "VolumeAttributesClass",
    (object) => stringAt(objectAt(asJson(object), "spec"), "volumeAttributesClassName") ?? "<unset>",
  ),
  field("Reason", "status", "reason"),
  ageColumn,
  field("VolumeMode", "spec", "volumeMode", wide),
];

function subjects(object: KubeObject, kind: string): string {
  const found = listAt(asJson(object), "subjects")
    .filter(isJsonObject)
    .filter((subject) => subject["kind"] === kind);
  const nameOf = (subject: JsonObject): string =>
    kind === "ServiceAccount"
      ? namespacedKey(stringAt(subject, "namespace"), stringAt(subject, "name") ?? "")
      : (stringAt(subject, "name") ?? "");
  return found.map(nameOf).join(", ");
}

const bindingColumns: ColumnDefinition[] = [
  nameColumn,
  textColumn("Role", (object) => {
    const role = objectAt(asJson(object), "roleRef");
    return `${stringAt(role, "kind") ?? ""}/${stringAt(role, "name") ?? ""}`;
  }),
  ageColumn,
  textColumn("Users", (object) => subjects(object, "User"), wide),
  textColumn("Groups", (object) => subjects(object, "Group"), wide),
  textColumn("ServiceAccounts", (object) => subjects(object, "ServiceAccount"), wide),
];

function quotaCell(object: KubeObject, isLimit: boolean): string {
  const status = objectAt(asJson(object), "status");
  const hard = objectAt(status, "hard") ?? {};
  const used = objectAt(status, "used") ?? {};
  const names = Object.keys(hard)
    .sort()
    .filter((name) => name.startsWith("limits.") === isLimit);
  return names.map((name) => `${name}: ${textOf(used[name] ?? "0")}/${textOf(hard[name])}`).join(", ");
}

const storageClassColumns: ColumnDefinition[] = [
  textColumn(
    "Name",
    (object) => {
      const isDefault = object.metadata.annotations?.["storageclass.kubernetes.io/is-default-class"] === "true";
      return `${object.metadata.name ?? ""}${isDefault ? " (default)" : ""}`;
    },
    { format: "name" },
  ),
  top("Provisioner", "provisioner"),
  top("ReclaimPolicy", "reclaimPolicy"),
  top("VolumeBindingMode", "volumeBindingMode"),
  top("AllowVolumeExpansion", "allowVolumeExpansion", false),
  ageColumn,
];

/** Items beyond this are counted, not shown. */
const shownMax = 3;

function shorten(items: readonly string[], empty: string): string {
  if (items.length === 0) return empty;
  const rest = items.length - shownMax;
  return items.slice(0, shownMax).join(",") + (rest > 0 ? ` + ${rest} more...` : "");
}

const endpointSliceColumns: ColumnDefinition[] = [
  nameColumn,
  top("AddressType", "addressType"),
  textColumn("Ports", (object) =>
    shorten(
      listAt(asJson(object), "ports")
        .filter(isJsonObject)
        .map((port) => textOf(port["port"] ?? "*")),
      "<unset>",
    ),
  ),
  textColumn("Endpoints", (object) => {
    const addresses = listAt(asJson(object), "endpoints")
      .filter(isJsonObject)
      .flatMap((endpoint) => listAt(endpoint, "addresses").map(String));
    return shorten(addresses, "<unset>");
  }),
  ageColumn,
];

const policyColumns: ColumnDefinition[] = [
  nameColumn,
  textColumn("Pod-Selector", (object) => {
    const selector = objectAt(objectAt(asJson(object), "spec"), "podSelector");
    const labels = Object.entries(objectAt(selector, "matchLabels") ?? {}).map(
      ([key, value]) => `${key}=${textOf(value)}`,
    );
    return labels.length === 0 ? "<none>" : labels.sort().join(",");
  }),
  ageColumn,
];

/** Kinds without columns of their own show when they were made. */
const defaultColumns: ColumnDefinition[] = [
  nameColumn,
  textColumn("Created At", (object) => object.metadata.creationTimestamp ?? "", { type: "date" }),
];

const columnsByResource: Readonly<Record<string, ColumnDefinition[]>> = {
  "/pods": podColumns,
  "/services": serviceColumns,
  "/nodes": nodeColumns,
  "/events": eventColumns,
  "events.k8s.io/events": eventColumns,
  "/namespaces": [nameColumn, field("Status", "status", "phase"), ageColumn],
  "/secrets": [nameColumn, top("Type", "type"), textColumn("Data", (object) => count(object, ["data"])), ageColumn],
  "/configmaps": [nameColumn, textColumn("Data", (object) => count(object, ["data", "binaryData"])), ageColumn],
  "/serviceaccounts": [nameColumn, ageColumn],
  "/persistentvolumeclaims": claimColumns,
  "/persistentvolumes": volumeColumns,
  "/resourcequotas": [
    nameColumn,
    textColumn("Request", (object) => quotaCell(object, false)),
    textColumn("Limit", (object) => quotaCell(object, true)),
    ageColumn,
  ],
  "coordination.k8s.io/leases": [nameColumn, field("Holder", "spec", "holderIdentity"), ageColumn],
  "discovery.k8s.io/endpointslices": endpointSliceColumns,
  "networking.k8s.io/networkpolicies": policyColumns,
  "node.k8s.io/runtimeclasses": [nameColumn, top("Handler", "handler"), ageColumn],
  "rbac.authorization.k8s.io/rolebindings": bindingColumns,
  "rbac.authorization.k8s.io/clusterrolebindings": bindingColumns,
  "scheduling.k8s.io/priorityclasses": [
    nameColumn,
    top("Value", "value", 0),
    top("Global-Default", "globalDefault", false),
    ageColumn,
    top("PreemptionPolicy", "preemptionPolicy"),
  ],
  "storage.k8s.io/storageclasses": storageClassColumns,
};

/** The columns of a built-in kind, as kube-apiserver prints them. */
export function builtinColumns(group: string, resource: string): ColumnDefinition[] {
  const key = `${group}/${resource}`;
  return (Object.hasOwn(columnsByResource, key) ? columnsByResource[key] : undefined) ?? defaultColumns;
}
