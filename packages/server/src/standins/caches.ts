import {
  type EndpointSlice,
  endpointSlices,
  type KubeObject,
  type Namespace,
  type Node,
  namespacedKey,
  namespaces,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  type Pod,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  type Resource,
  type ResourceQuota,
  resourceQuotas,
  type Service,
  type StorageClass,
  services,
  storageClasses,
} from "@agent-sandbox/api";
import { type IndexFunction, Informer, type InformerOptions } from "@agent-sandbox/kube";
import { EveryObject } from "./every-object.ts";
import type { StandinContext } from "./standin-context.ts";

/** Index of namespaced objects by namespace. */
export const byNamespace = "namespace";
/** Index of Pods by the node they are bound to; empty for those that wait. */
export const byNode = "node";
/** Index of EndpointSlices by `namespace/service`. */
export const byService = "service";

/** Index of Pods by each `namespace/label=value` they carry. */
export const byLabel = "label";
/** Index of Pods by each `namespace/claim` they mount. */
export const byClaim = "claim";
/** Index of Services by one `namespace/label=value` of their selector: every Pod that is selected carries it. */
export const bySelector = "selector";

/** What is done with a cache whatever its kind. */
export type RunningCache = Pick<Informer<KubeObject>, "run" | "synced">;

/** One informer per kind, shared by all stand-ins. */
export interface Caches {
  readonly pods: Informer<Pod>;
  readonly nodes: Informer<Node>;
  readonly services: Informer<Service>;
  readonly endpointSlices: Informer<EndpointSlice>;
  readonly namespaces: Informer<Namespace>;
  readonly claims: Informer<PersistentVolumeClaim>;
  readonly volumes: Informer<PersistentVolume>;
  readonly storageClasses: Informer<StorageClass>;
  readonly quotas: Informer<ResourceQuota>;
  readonly everyObject: EveryObject;
  /** Runs all of them until the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
}

/** Makes the informers; nothing is read before `run`. */
export function createCaches(context: StandinContext): Caches {
  const { client, clock, logger } = context;
  const all: RunningCache[] = [];
  const make = <T extends KubeObject>(
    resource: Resource<T>,
    indexers: Record<string, IndexFunction<T>> = {},
  ): Informer<T> => {
    const options: InformerOptions<T> = {
      client,
      resource,
      clock,
      indexers: { ...indexers, [byNamespace]: (object) => [object.metadata.namespace ?? ""] },
      transform: withoutManagedFields,
      onError: (error) => logger.warn({ err: error, resource: resource.resource }, "watch failed"),
    };
    const informer = new Informer(options);
    all.push(informer);
    return informer;
  };
  const everyObject = new EveryObject(context);
  return {
    pods: make(pods, {
      [byNode]: ({ spec }) => [spec?.nodeName ?? ""],
      [byLabel]: labelKeys,
      [byClaim]: ({ metadata, spec }) =>
        (spec?.volumes ?? []).flatMap(({ persistentVolumeClaim: source }) =>
          source === undefined ? [] : [namespacedKey(metadata.namespace, source.claimName)],
        ),
    }),
    nodes: make(nodes),
    services: make(services, { [bySelector]: (service) => selectorKey(service) ?? [] }),
    endpointSlices: make(endpointSlices, {
      [byService]: ({ metadata }) => [
        namespacedKey(metadata.namespace, metadata.labels?.["kubernetes.io/service-name"] ?? ""),
      ],
    }),
    namespaces: make(namespaces),
    claims: make(persistentVolumeClaims),
    volumes: make(persistentVolumes),
    storageClasses: make(storageClasses),
    quotas: make(resourceQuotas),
    everyObject,
    run: async (signal) => {
      await Promise.all([...all.map((informer) => informer.run(signal)), everyObject.run(signal)]);
    },
  };
}

/** The keys under which `byLabel` and `bySelector` meet. */
export function labelKeys({ metadata }: KubeObject): string[] {
  return Object.entries(metadata.labels ?? {}).map(([label, value]) => `${metadata.namespace}/${label}=${value}`);
}

/** The key of a Service in `bySelector`, in a list; undefined when it selects nothing or everything. */
export function selectorKey({ metadata, spec }: Service): [string] | undefined {
  const [first] = Object.entries(spec?.selector ?? {});
  return first === undefined ? undefined : [`${metadata.namespace}/${first[0]}=${first[1]}`];
}

/** Managed fields are a third of an object and no stand-in reads them. */
function withoutManagedFields<T extends KubeObject>(object: T): T {
  delete object.metadata.managedFields;
  return object;
}
