import { notFound, serviceUnavailable } from "@agent-sandbox/api";
import { isJsonObject, listAt, numberAt, objectAt, stringAt } from "../json/json.ts";
import { asJson } from "../object.ts";
import type { ServerParts } from "../server-parts.ts";
import type { NodeAddress } from "./https-node-dialer.ts";

/** Reads from the Node object where its kubelet endpoint listens. */
export function nodeAddressOf({ storage, registry }: ServerParts, nodeName: string): NodeAddress {
  const nodes = registry.find("", "nodes");
  const node = nodes === undefined ? undefined : storage.get(nodes, { name: nodeName });
  if (node === undefined) throw notFound({ resource: "nodes", name: nodeName });
  const status = objectAt(asJson(node.object), "status");
  const addresses = listAt(status, "addresses").filter(isJsonObject);
  const internal = addresses.find((address) => address["type"] === "InternalIP") ?? addresses[0];
  const host = stringAt(internal, "address");
  const port = numberAt(objectAt(objectAt(status, "daemonEndpoints"), "kubeletEndpoint"), "Port");
  if (host === undefined || port === undefined)
    throw serviceUnavailable(`node ${nodeName} has not said where it listens`, 1);
  return { host, port };
}
