import { asJson, isJsonObject } from "@agent-sandbox/api";
import { listAt, numberAt, objectAt, stringAt } from "../json/json.ts";
import type { Registry } from "../registry/registry.ts";
import { listPrefix } from "../storage/object-key.ts";
import type { ObjectStorage } from "../storage/object-storage.ts";
import type { ServiceResolver } from "./conversion-webhook.ts";

/** Finds ready endpoints of Services in the stored EndpointSlices. */
export function serviceResolver({
  storage,
  registry,
}: {
  storage: ObjectStorage;
  registry: Registry;
}): ServiceResolver {
  return ({ namespace, name, port }) => {
    const services = registry.find("", "services");
    const slices = registry.find("discovery.k8s.io", "endpointslices");
    const service = services === undefined ? undefined : storage.get(services, { namespace, name });
    if (service === undefined || slices === undefined) return undefined;
    const ports = listAt(objectAt(asJson(service.object), "spec"), "ports").filter(isJsonObject);
    const wanted = ports.find((entry) => entry["port"] === port);
    if (wanted === undefined) return undefined;
    for (const row of storage.store.list({ prefix: listPrefix(slices, namespace) }).rows) {
      const slice = storage.read(slices, row);
      if (slice.metadata.labels?.["kubernetes.io/service-name"] !== name) continue;
      const found = listAt(asJson(slice), "ports")
        .filter(isJsonObject)
        .find((entry) => (stringAt(entry, "name") ?? "") === (stringAt(wanted, "name") ?? ""));
      const endpoint = listAt(asJson(slice), "endpoints")
        .filter(isJsonObject)
        .find((entry) => objectAt(entry, "conditions")?.["ready"] !== false);
      const host = listAt(endpoint, "addresses")[0];
      const target = numberAt(found, "port");
      if (typeof host === "string" && target !== undefined) return { host, port: target };
    }
    return undefined;
  };
}
