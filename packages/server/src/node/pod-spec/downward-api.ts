import type { Container, Pod, ResourceFieldSelector } from "@agent-sandbox/api";
import { quantityValue } from "./resources.ts";

/** What a pod may learn about the node it runs on. */
export interface NodeFacts {
  readonly name: string;
  readonly address: string;
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  readonly diskBytes: number;
}

/** A pod's field as the downward API prints it; unknown paths are empty, as admission has already refused them. */
export function fieldValue(pod: Pod, fieldPath: string, node: NodeFacts): string {
  const { metadata, spec, status } = pod;
  const subscript = /^metadata\.(annotations|labels)\['(.*)'\]$/.exec(fieldPath);
  if (subscript !== null) {
    const entries = subscript[1] === "labels" ? metadata.labels : metadata.annotations;
    return entries?.[subscript[2] ?? ""] ?? "";
  }
  switch (fieldPath) {
    case "metadata.name":
      return metadata.name;
    case "metadata.namespace":
      return metadata.namespace ?? "";
    case "metadata.uid":
      return metadata.uid ?? "";
    case "metadata.labels":
      return formatEntries(metadata.labels);
    case "metadata.annotations":
      return formatEntries(metadata.annotations);
    case "spec.nodeName":
      return spec?.nodeName ?? node.name;
    case "spec.serviceAccountName":
      return spec?.serviceAccountName ?? "default";
    case "status.hostIP":
    case "status.hostIPs":
      return node.address;
    case "status.podIP":
      return status?.podIP ?? "";
    case "status.podIPs":
      return (status?.podIPs ?? []).map(({ ip }) => ip).join(",");
    default:
      return "";
  }
}

/** A container's request or limit, divided as asked and rounded up; a limit that is not set is the node's own. */
export function resourceFieldValue(container: Container, selector: ResourceFieldSelector, node: NodeFacts): string {
  const [list, ...rest] = selector.resource.split(".");
  const resource = rest.join(".");
  const { requests, limits } = container.resources ?? {};
  const written = list === "limits" ? limits?.[resource] : (requests?.[resource] ?? limits?.[resource]);
  const fallback = list === "limits" ? nodeCapacity(resource, node) : 0;
  const value = written === undefined ? fallback : quantityValue(written);
  const divisor = quantityValue(selector.divisor === undefined || selector.divisor === "0" ? "1" : selector.divisor);
  // A tiny tolerance keeps 0.1 / 0.001 from becoming 101.
  return String(Math.ceil(value / divisor - 1e-9));
}

function nodeCapacity(resource: string, node: NodeFacts): number {
  switch (resource) {
    case "cpu":
      return node.cpuMillis / 1000;
    case "memory":
      return node.memoryBytes;
    case "ephemeral-storage":
      return node.diskBytes;
    default:
      return 0;
  }
}

/** `key="value"` lines, sorted by key, with the escapes of a Go string. */
function formatEntries(entries: Readonly<Record<string, string>> | undefined): string {
  return Object.keys(entries ?? {})
    .sort()
    .map((key) => `${key}=${JSON.stringify(entries?.[key])}`)
    .join("\n");
}
