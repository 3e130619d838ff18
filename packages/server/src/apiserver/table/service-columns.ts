import { asJson, isJsonObject, type JsonObject, type KubeObject } from "@agent-sandbox/api";
import { listAt, numberAt, objectAt, stringAt, textOf } from "../json/json.ts";
import type { ColumnDefinition } from "./column.ts";
import { ageColumn, nameColumn, textColumn } from "./columns.ts";

function specOf(object: KubeObject): JsonObject | undefined {
  return objectAt(asJson(object), "spec");
}

function externalAddress(object: KubeObject): string {
  const spec = specOf(object);
  const type = stringAt(spec, "type");
  if (type === "ExternalName") return stringAt(spec, "externalName") ?? "";
  const external = listAt(spec, "externalIPs").map(String);
  const ingress = listAt(objectAt(objectAt(asJson(object), "status"), "loadBalancer"), "ingress").filter(isJsonObject);
  const balanced = ingress.map((entry) => stringAt(entry, "ip") ?? stringAt(entry, "hostname") ?? "");
  const all = type === "LoadBalancer" ? [...balanced, ...external] : external;
  if (all.length > 0) return all.join(",");
  return type === "LoadBalancer" ? "<pending>" : "<none>";
}

function ports(object: KubeObject): string {
  const list = listAt(specOf(object), "ports").filter(isJsonObject);
  if (list.length === 0) return "<none>";
  return list
    .map((port) => {
      const node = numberAt(port, "nodePort");
      return `${textOf(port["port"])}${node === undefined || node === 0 ? "" : `:${node}`}/${stringAt(port, "protocol") ?? "TCP"}`;
    })
    .join(",");
}

function selector(object: KubeObject): string {
  const labels = Object.entries(objectAt(specOf(object), "selector") ?? {}).map(
    ([key, value]) => `${key}=${textOf(value)}`,
  );
  return labels.length === 0 ? "<none>" : labels.sort().join(",");
}

/** The columns of services. */
export const serviceColumns: ColumnDefinition[] = [
  nameColumn,
  textColumn("Type", (object) => stringAt(specOf(object), "type") ?? ""),
  textColumn("Cluster-IP", (object) => stringAt(specOf(object), "clusterIP") || "<none>"),
  textColumn("External-IP", externalAddress),
  textColumn("Port(s)", ports),
  ageColumn,
  textColumn("Selector", selector, { wide: true }),
];
