import { asJson, isJsonObject, type KubeObject } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt } from "../json/json.ts";
import type { ColumnDefinition } from "./column.ts";
import { ageColumn, nameColumn, textColumn } from "./columns.ts";

function status(object: KubeObject): string {
  const conditions = listAt(objectAt(asJson(object), "status"), "conditions").filter(isJsonObject);
  const ready = conditions.find((condition) => condition["type"] === "Ready");
  const words = [ready === undefined ? "Unknown" : ready["status"] === "True" ? "Ready" : "NotReady"];
  if (objectAt(asJson(object), "spec")?.["unschedulable"] === true) words.push("SchedulingDisabled");
  return words.join(",");
}

const rolePrefix = "node-role.kubernetes.io/";

function roles(object: KubeObject): string {
  const labels = Object.keys(object.metadata.labels ?? {});
  const found = labels.filter((label) => label.startsWith(rolePrefix)).map((label) => label.slice(rolePrefix.length));
  return found.length === 0 ? "<none>" : found.sort().join(",");
}

function address(object: KubeObject, type: string): string {
  const addresses = listAt(objectAt(asJson(object), "status"), "addresses").filter(isJsonObject);
  return (
    stringAt(
      addresses.find((entry) => entry["type"] === type),
      "address",
    ) ?? "<none>"
  );
}

function info(object: KubeObject, key: string, otherwise = "<unknown>"): string {
  return stringAt(objectAt(objectAt(asJson(object), "status"), "nodeInfo"), key) ?? otherwise;
}

const wide = { wide: true };

/** The columns of nodes. */
export const nodeColumns: ColumnDefinition[] = [
  nameColumn,
  textColumn("Status", status),
  textColumn("Roles", roles),
  ageColumn,
  textColumn("Version", (object) => info(object, "kubeletVersion", "")),
  textColumn("Internal-IP", (object) => address(object, "InternalIP"), wide),
  textColumn("External-IP", (object) => address(object, "ExternalIP"), wide),
  textColumn("OS-Image", (object) => info(object, "osImage"), wide),
  textColumn("Kernel-Version", (object) => info(object, "kernelVersion"), wide),
  textColumn("Container-Runtime", (object) => info(object, "containerRuntimeVersion"), wide),
];
