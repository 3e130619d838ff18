import {
  type EndpointSlice,
  endpointSlices,
  type Namespace,
  type NetworkPolicy,
  namespacedKey,
  namespaces,
  networkPolicies,
  type PersistentVolume,
  type Pod,
  persistentVolumes,
  pods,
  type Sandbox,
  type SandboxArchive,
  type SandboxSnapshot,
  type Service,
  sandboxArchives,
  sandboxes,
  sandboxSnapshots,
  services,
} from "@agent-sandbox/api";
import { type Client, type Clock, Informer } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";
import type { ServiceRecord, ZoneRecords } from "./dns/dns-zone.ts";
import { addressOf } from "./network/sandbox-addresses.ts";

/** What the node keeps in memory of the API. */
export interface NodeCaches {
  readonly pods: Informer<Pod>;
  readonly sandboxes: Informer<Sandbox>;
  readonly services: Informer<Service>;
  readonly endpointSlices: Informer<EndpointSlice>;
  readonly namespaces: Informer<Namespace>;
  readonly policies: Informer<NetworkPolicy>;
  readonly volumes: Informer<PersistentVolume>;
  readonly snapshots: Informer<SandboxSnapshot>;
  readonly archives: Informer<SandboxArchive>;
}

/** Makes the caches; nothing is read before they run. */
export function createCaches({
  client,
  clock,
  logger,
  nodeName,
}: {
  client: Client;
  clock: Clock;
  logger: Logger;
  nodeName: string;
}): NodeCaches {
  const onError = (error: unknown): void => logger.warn({ err: error }, "a watch failed; it is tried again");
  const shared = { client, clock, onError };
  const byNamespace = {
    namespace: (object: { metadata: { namespace?: string } }) => [object.metadata.namespace ?? ""],
  };
  return {
    pods: new Informer({
      ...shared,
      resource: pods,
      fieldSelector: `spec.nodeName=${nodeName}`,
      indexers: {
        address: (pod) => (pod.status?.podIPs ?? []).flatMap(({ ip }) => (ip === undefined ? [] : [ip])),
        uid: ({ metadata }) => (metadata.uid === undefined ? [] : [metadata.uid]),
      },
    }),
    sandboxes: new Informer({
      ...shared,
      resource: sandboxes,
      indexers: { address: (sandbox) => [addressOf(sandbox)].filter((address) => address !== undefined) },
    }),
    services: new Informer({ ...shared, resource: services, indexers: byNamespace }),
    endpointSlices: new Informer({
      ...shared,
      resource: endpointSlices,
      indexers: {
        service: ({ metadata }) => [
          namespacedKey(metadata.namespace, metadata.labels?.["kubernetes.io/service-name"] ?? ""),
        ],
      },
    }),
    namespaces: new Informer({ ...shared, resource: namespaces }),
    policies: new Informer({ ...shared, resource: networkPolicies }),
    volumes: new Informer({ ...shared, resource: persistentVolumes }),
    snapshots: new Informer({
      ...shared,
      resource: sandboxSnapshots,
      indexers: { sandbox: ({ metadata, spec }) => [namespacedKey(metadata.namespace, spec.sandboxName)] },
    }),
    archives: new Informer({ ...shared, resource: sandboxArchives }),
  };
}

/** Every cache, for starting and waiting. */
export function allCaches(caches: NodeCaches): Pick<Informer<Pod>, "run" | "synced">[] {
  return [
    caches.pods,
    caches.sandboxes,
    caches.services,
    caches.endpointSlices,
    caches.namespaces,
    caches.policies,
    caches.volumes,
    caches.snapshots,
    caches.archives,
  ];
}

/** The DNS zone as the caches have it. */
export function zoneRecords(caches: NodeCaches): ZoneRecords {
  return {
    sandbox: (namespace, name) => {
      const key = namespacedKey(namespace, name);
      // A Sandbox without an address of its own is found through its pod.
      return addressOf(caches.sandboxes.get(key)) ?? caches.sandboxes.get(key)?.status?.podIPs?.[0];
    },
    service: (namespace, name) => serviceRecord(caches, namespacedKey(namespace, name)),
    hasPod: (namespace, address) =>
      caches.pods.byIndex("address", address).some(({ metadata }) => metadata.namespace === namespace),
  };
}

/** The tenant of a sandbox is its namespace; an address that no Pod has is a tenant of its own. */
export function tenantOf({ pods: known }: NodeCaches, address: string): string {
  return known.byIndex("address", address)[0]?.metadata.namespace ?? address;
}

function serviceRecord(
  { services: known, endpointSlices: slices }: NodeCaches,
  key: string,
): ServiceRecord | undefined {
  const spec = known.get(key)?.spec;
  if (spec === undefined) return undefined;
  const isHeadless = spec.clusterIP === undefined || spec.clusterIP === "" || spec.clusterIP === "None";
  const endpoints = slices
    .byIndex("service", key)
    .flatMap((slice) =>
      (slice.endpoints ?? []).flatMap(({ addresses, conditions, hostname }) =>
        conditions?.ready === false && spec.publishNotReadyAddresses !== true
          ? []
          : addresses.map((address) => ({ address, ...(hostname !== undefined && { hostname }) })),
      ),
    );
  return {
    ...(!isHeadless && spec.clusterIP !== undefined && { clusterIp: spec.clusterIP }),
    ...(spec.type === "ExternalName" && spec.externalName !== undefined && { externalName: spec.externalName }),
    endpoints,
    ports: (spec.ports ?? []).map(({ name = "", protocol = "TCP", port }) => ({ name, protocol, port })),
  };
}
