import { badRequest, notFound, serviceUnavailable } from "@agent-sandbox/api";
import { isJsonObject, type JsonObject, listAt, objectAt, stringAt, textOf } from "../json/json.ts";
import { asJson } from "../object.ts";
import { type RequestScope, subjectOf } from "../request/scope.ts";
import { listPrefix } from "../storage/object-key.ts";
import type { NodeTarget } from "./pod-target.ts";

/** A pod and one of its ports. */
interface PodPort {
  readonly namespace: string;
  readonly pod: string;
  readonly nodeName: string;
  readonly port: string;
}

/** The node and path for pods/proxy, services/proxy and nodes/proxy; throws NotFound or BadRequest. */
export function proxyTarget(scope: RequestScope): NodeTarget {
  const query = scope.query.toString();
  const tail = `${scope.rest === "" ? "/" : scope.rest}${query === "" ? "" : `?${query}`}`;
  if (scope.definition.resource === "nodes") return { nodeName: nodeOf(scope), path: tail };
  const { namespace, pod, nodeName, port } = scope.definition.resource === "pods" ? podPort(scope) : servicePort(scope);
  const at = [namespace, pod, port].map(encodeURIComponent).join("/");
  return { nodeName, path: `/podProxy/${at}${tail}` };
}

function nodeOf(scope: RequestScope): string {
  const [name = ""] = scope.name.split(":");
  if (scope.server.storage.getRow(scope.definition, { name }) === undefined) throw notFound(subjectOf(scope, name));
  return name;
}

/** `[scheme:]name[:port]`, as in the path. */
function splitName(text: string): { name: string; port: string } {
  const parts = text.split(":");
  if (parts.length === 3) return { name: parts[1] ?? "", port: parts[2] ?? "" };
  return { name: parts[0] ?? "", port: parts[1] ?? "" };
}

function podPort(scope: RequestScope): PodPort {
  const { name, port } = splitName(scope.name);
  const stored = scope.server.storage.get(scope.definition, { namespace: scope.namespace, name });
  if (stored === undefined) throw notFound(subjectOf(scope, name));
  const spec = objectAt(asJson(stored.object), "spec");
  const nodeName = stringAt(spec, "nodeName") ?? "";
  if (nodeName === "") throw badRequest(`pod ${name} does not have a host assigned`);
  const first = listAt(listAt(spec, "containers").find(isJsonObject) as JsonObject | undefined, "ports").find(
    isJsonObject,
  );
  return {
    namespace: scope.namespace,
    pod: name,
    nodeName,
    port: port === "" ? textOf(first?.["containerPort"] ?? 80) : port,
  };
}

/** The first ready endpoint of a Service, found through its EndpointSlices. */
function servicePort(scope: RequestScope): PodPort {
  const { name, port } = splitName(scope.name);
  const { storage, registry } = scope.server;
  const service = storage.get(scope.definition, { namespace: scope.namespace, name });
  if (service === undefined) throw notFound(subjectOf(scope, name));
  const slices = registry.find("discovery.k8s.io", "endpointslices");
  if (slices === undefined) throw serviceUnavailable("endpoint slices are not served");
  const rows = storage.store.list({ prefix: listPrefix(slices, scope.namespace) }).rows;
  for (const slice of rows.map((row) => storage.read(slices, row))) {
    if (slice.metadata.labels?.["kubernetes.io/service-name"] !== name) continue;
    const found = endpointOf(asJson(slice), port);
    if (found !== undefined) return { namespace: scope.namespace, ...found };
  }
  throw serviceUnavailable(`no endpoints available for service ${JSON.stringify(name)}`);
}

function endpointOf(slice: JsonObject, port: string): Omit<PodPort, "namespace"> | undefined {
  const ports = listAt(slice, "ports").filter(isJsonObject);
  const wanted =
    port === "" ? ports[0] : ports.find((entry) => entry["name"] === port || textOf(entry["port"]) === port);
  const ready = listAt(slice, "endpoints")
    .filter(isJsonObject)
    .find((entry) => objectAt(entry, "conditions")?.["ready"] !== false);
  const pod = stringAt(objectAt(ready, "targetRef"), "name");
  const nodeName = stringAt(ready, "nodeName");
  if (pod === undefined || nodeName === undefined) return undefined;
  return { pod, nodeName, port: textOf(wanted?.["port"] ?? port) };
}
