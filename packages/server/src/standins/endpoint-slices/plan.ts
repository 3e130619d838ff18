import {
  controllerReference,
  type Endpoint,
  type EndpointPort,
  type EndpointSlice,
  nameHash,
  type Pod,
  type Service,
  type ServicePort,
  semanticEqual,
  services,
} from "@agent-sandbox/api";

/** Endpoints per slice: Kubernetes' default. */
const endpointsMax = 100;
const serviceLabel = "kubernetes.io/service-name";
const managedByLabel = "endpointslice.kubernetes.io/managed-by";
/** The value by which slices of the built-in controller are known. */
const managedBy = "endpointslice-controller.k8s.io";

/** What one pass looks at. */
export interface Observed {
  readonly service: Service;
  /** All Pods of the namespace that the selector matches. */
  readonly pods: readonly Pod[];
  /** All slices that name the Service. */
  readonly slices: readonly EndpointSlice[];
}

/** One step. */
export type Action =
  | { readonly do: "create"; readonly slice: EndpointSlice }
  | { readonly do: "update"; readonly slice: EndpointSlice }
  | { readonly do: "delete"; readonly name: string; readonly uid: string };

/** Decides the slices of one Service; slices of other managers are left alone. */
export function planEndpointSlices({ service, pods, slices }: Observed): readonly Action[] {
  const ours = slices.filter(({ metadata }) => metadata.labels?.[managedByLabel] === managedBy);
  if (service.spec?.selector === undefined || service.metadata.deletionTimestamp !== undefined) return [];
  const wanted = service.spec.type === "ExternalName" ? [] : desiredSlices(service, pods);
  const actions = wanted.map((slice): Action | undefined => {
    const present = ours.find(({ metadata }) => metadata.name === slice.metadata.name);
    if (present === undefined) return { do: "create", slice };
    if (isSame(present, slice)) return undefined;
    return { do: "update", slice: { ...slice, metadata: { ...present.metadata, ...slice.metadata } } };
  });
  const stale = ours.filter(({ metadata }) => !wanted.some((slice) => slice.metadata.name === metadata.name));
  return [
    ...actions.filter((action) => action !== undefined),
    ...stale.map(({ metadata }): Action => ({ do: "delete", name: metadata.name, uid: metadata.uid ?? "" })),
  ];
}

function isSame(present: EndpointSlice, wanted: EndpointSlice): boolean {
  return (
    semanticEqual(present.endpoints ?? [], wanted.endpoints ?? []) &&
    semanticEqual(present.ports ?? [], wanted.ports ?? []) &&
    semanticEqual(present.metadata.labels, wanted.metadata.labels)
  );
}

function desiredSlices(service: Service, pods: readonly Pod[]): EndpointSlice[] {
  const usable = pods.filter(isReachable).sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  // Pods that give a named port different numbers cannot share a slice.
  const groups = new Map<string, { ports: EndpointPort[]; pods: Pod[] }>();
  for (const pod of usable) {
    const ports = portsOf(service, pod);
    const key = JSON.stringify(ports);
    const group = groups.get(key) ?? { ports, pods: [] };
    group.pods.push(pod);
    groups.set(key, group);
  }
  // A Service without a ready Pod still has a slice: watchers see that it is known.
  if (groups.size === 0) groups.set("", { ports: [], pods: [] });
  const chunks = [...groups.values()].flatMap(({ ports, pods: members }) =>
    chunked(members).map((chunk) => ({ ports, pods: chunk })),
  );
  return chunks.map((chunk, index) => sliceOf(service, chunk, index));
}

function chunked(pods: readonly Pod[]): Pod[][] {
  const count = Math.max(1, Math.ceil(pods.length / endpointsMax));
  return Array.from({ length: count }, (_, index) => pods.slice(index * endpointsMax, (index + 1) * endpointsMax));
}

function sliceOf(
  service: Service,
  { ports, pods }: { ports: EndpointPort[]; pods: readonly Pod[] },
  index: number,
): EndpointSlice {
  const { name, namespace = "", uid = "", labels } = service.metadata;
  const headless = service.spec?.clusterIP === "None" ? { "service.kubernetes.io/headless": "" } : {};
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      // The Service's uid keeps a namesake's slices apart while the old ones are being collected.
      name: `${name}-${nameHash(`${uid}/${index}`).slice(0, 5)}`,
      namespace,
      labels: { ...labels, ...headless, [serviceLabel]: name, [managedByLabel]: managedBy },
      ownerReferences: [controllerReference(services, service)],
    },
    addressType: "IPv4",
    endpoints: pods.map((pod) => endpointOf(service, pod)),
    ports,
  };
}

function isReachable({ status, metadata }: Pod): boolean {
  if ((status?.podIP ?? "") === "" || status?.phase === "Succeeded" || status?.phase === "Failed") return false;
  return metadata.uid !== undefined;
}

function endpointOf(
  { spec, metadata: { name: serviceName } }: Service,
  { metadata, spec: podSpec, status }: Pod,
): Endpoint {
  const serving = status?.conditions?.some(({ type, status: value }) => type === "Ready" && value === "True") === true;
  const terminating = metadata.deletionTimestamp !== undefined;
  const ready = spec?.publishNotReadyAddresses === true || (serving && !terminating);
  const hasHostname = podSpec?.hostname !== undefined && podSpec.subdomain === serviceName;
  return {
    addresses: [status?.podIP ?? ""],
    conditions: { ready, serving, terminating },
    ...(hasHostname ? { hostname: podSpec.hostname as string } : {}),
    ...(podSpec?.nodeName === undefined ? {} : { nodeName: podSpec.nodeName }),
    targetRef: { kind: "Pod", namespace: metadata.namespace ?? "", name: metadata.name, uid: metadata.uid ?? "" },
  };
}

function portsOf({ spec }: Service, pod: Pod): EndpointPort[] {
  return (spec?.ports ?? []).flatMap((port) => {
    const number = targetPort(port, pod);
    if (number === undefined) return [];
    const appProtocol = port.appProtocol === undefined ? {} : { appProtocol: port.appProtocol };
    return [{ name: port.name ?? "", protocol: port.protocol ?? "TCP", port: number, ...appProtocol }];
  });
}

function targetPort({ port, targetPort: target, protocol = "TCP" }: ServicePort, { spec }: Pod): number | undefined {
  if (target === undefined || target === 0 || target === "") return port;
  if (typeof target === "number") return target;
  const ports = (spec?.containers ?? []).flatMap((container) => container.ports ?? []);
  return ports.find(({ name, protocol: spoken = "TCP" }) => name === target && spoken === protocol)?.containerPort;
}
