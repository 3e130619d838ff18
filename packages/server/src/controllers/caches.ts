import type {
  KubeObject,
  NetworkPolicy,
  PersistentVolumeClaim,
  Pod,
  Resource,
  Sandbox,
  SandboxArchive,
  SandboxClaim,
  SandboxSnapshot,
  SandboxTemplate,
  SandboxWarmPool,
  Service,
} from "@agent-sandbox/api";
import {
  controllerOf,
  labelKeys,
  nameHash,
  networkPolicies,
  persistentVolumeClaims,
  pods,
  sandboxArchives,
  sandboxClaims,
  sandboxes,
  sandboxSnapshots,
  sandboxTemplates,
  sandboxWarmPools,
  services,
} from "@agent-sandbox/api";
import { type Client, type Clock, type IndexFunction, Informer } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";
import type { ControllerConfig } from "./config.ts";
import { Mirror } from "./mirror.ts";
import { trackedPodName } from "./sandbox-pod/plan.ts";

/** One mirror per kind, shared by all controllers of the process. */
export interface Caches {
  readonly sandboxes: Mirror<Sandbox>;
  readonly pods: Mirror<Pod>;
  readonly services: Mirror<Service>;
  readonly volumeClaims: Mirror<PersistentVolumeClaim>;
  readonly extensions: ExtensionCaches | undefined;
  /** Not among the informers below, so that nothing waits for it: a cluster whose CRDs are the reference's does not serve this kind. */
  readonly snapshots: Mirror<SandboxSnapshot>;
  /** Not among the informers below, for the same reason. */
  readonly archives: Mirror<SandboxArchive>;
  /** The informer behind each mirror, to run and to wait for. */
  readonly informers: readonly RunningCache[];
}

/** What is done with a cache whatever its kind. */
export type RunningCache = Pick<Informer<KubeObject>, "run" | "synced" | "hasSynced">;

/** The kinds that only template, pool and claim controllers read. */
export interface ExtensionCaches {
  readonly claims: Mirror<SandboxClaim>;
  readonly pools: Mirror<SandboxWarmPool>;
  readonly templates: Mirror<SandboxTemplate>;
  readonly networkPolicies: Mirror<NetworkPolicy>;
}

/** Index names; values carry the namespace, because names are only unique within one. */
export const byLabelHash = "label-hash";
export const byOwner = "owner";
export const byNameHash = "name-hash";
export const byTrackedPod = "tracked-pod";
export const byPoolLabel = "pool-label";
export const byPool = "pool";
export const byTemplate = "template";
export const byTemplateRef = "template-ref";
export const bySnapshot = "snapshot";
export const bySandbox = "sandbox";

/** What the caches need. */
export interface CacheOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly config: ControllerConfig;
  readonly logger: Logger;
  readonly random: () => number;
}

/** Opens the mirrors; nothing is listed before their informers run. */
export function openCaches(options: CacheOptions): Caches {
  const tracked = options.config.cacheLabelSelectors ? { labelSelector: labelKeys.sandboxNameHash } : {};
  const sandboxMirror = mirror(options, sandboxes, sandboxIndexers);
  const podMirror = mirror(options, pods, podIndexers, { ...tracked, transform: stripPod });
  const serviceMirror = mirror(options, services, {}, tracked);
  const claimMirror = mirror(options, persistentVolumeClaims, {});
  const extensions = options.config.extensions ? openExtensionCaches(options) : undefined;
  const mirrors: readonly { readonly informer: RunningCache }[] = [
    sandboxMirror,
    podMirror,
    serviceMirror,
    claimMirror,
    ...Object.values(extensions ?? {}),
  ];
  return {
    sandboxes: sandboxMirror,
    pods: podMirror,
    services: serviceMirror,
    volumeClaims: claimMirror,
    extensions,
    snapshots: mirror(options, sandboxSnapshots, {
      [bySandbox]: (snapshot) => [scoped(snapshot, snapshot.spec.sandboxName)],
      [byOwner]: ownerValue,
    }),
    archives: mirror(options, sandboxArchives, {}),
    informers: mirrors.map(({ informer }) => informer),
  };
}

function openExtensionCaches(options: CacheOptions): ExtensionCaches {
  return {
    claims: mirror(options, sandboxClaims, {
      [byPool]: (claim) => [scoped(claim, claim.spec.warmPoolRef.name)],
    }),
    pools: mirror(options, sandboxWarmPools, {
      [byTemplate]: (pool) => [scoped(pool, pool.spec.sandboxTemplateRef.name)],
    }),
    templates: mirror(options, sandboxTemplates, {
      [byNameHash]: (template) => [scoped(template, nameHash(template.metadata.name))],
    }),
    networkPolicies: mirror(options, networkPolicies, {}),
  };
}

const sandboxIndexers: Record<string, IndexFunction<Sandbox>> = {
  [byNameHash]: (sandbox) => [scoped(sandbox, nameHash(sandbox.metadata.name))],
  [byTrackedPod]: (sandbox) => [scoped(sandbox, trackedPodName(sandbox))],
  [byPoolLabel]: (sandbox) => labelValue(sandbox, labelKeys.warmPoolSandbox),
  [byTemplateRef]: (sandbox) => labelValue(sandbox, labelKeys.templateRefHash),
  [bySnapshot]: (sandbox) => {
    const names = [sandbox.spec.restoreFrom?.snapshotName, sandbox.status?.restart?.name];
    return names.flatMap((name) => (name === undefined ? [] : [scoped(sandbox, name)]));
  },
  [byOwner]: ownerValue,
};

const podIndexers: Record<string, IndexFunction<Pod>> = {
  [byTemplateRef]: (pod) => labelValue(pod, labelKeys.templateRefHash),
  [byLabelHash]: (pod) => labelValue(pod, labelKeys.sandboxNameHash),
  [byOwner]: ownerValue,
};

function ownerValue(object: KubeObject): string[] {
  const owner = controllerOf(object);
  return owner === undefined ? [] : [scoped(object, owner.uid)];
}

function labelValue(object: KubeObject, label: string): string[] {
  const value = object.metadata.labels?.[label];
  return value === undefined ? [] : [scoped(object, value)];
}

/** An index value within the object's namespace. */
export function scoped(object: KubeObject, value: string): string {
  return `${object.metadata.namespace ?? ""}/${value}`;
}

/** One mirror; nothing is listed before its informer runs. */
export function mirror<T extends KubeObject>(
  { client, clock, config, logger, random }: CacheOptions,
  resource: Resource<T>,
  indexers: Record<string, IndexFunction<T>>,
  extra: { labelSelector?: string; transform?: (object: T) => T } = {},
): Mirror<T> {
  const { transform = stripManagedFields, ...select } = extra;
  const informer = new Informer<T>({
    client,
    resource,
    clock,
    random,
    indexers,
    transform,
    freeze: config.freezeCaches,
    onError: (error) => logger.debug({ resource: resource.resource, err: error }, "watch interrupted"),
    ...select,
  });
  return new Mirror(informer, indexers);
}

/** No controller reads who set which field, and it is half of many objects. */
function stripManagedFields<T extends KubeObject>(object: T): T {
  delete object.metadata.managedFields;
  return object;
}

/**
 * Keeps of a Pod's spec the node alone. Safe because Pods are written from the Sandbox's template, and every other
 * write is a metadata patch computed from what is kept. Exported for tests.
 */
export function stripPod(pod: Pod): Pod {
  const { managedFields: _managedFields, finalizers: _finalizers, ...metadata } = pod.metadata;
  const nodeName = pod.spec?.nodeName;
  // The type wants containers; what is kept is only ever read.
  const spec = (nodeName === undefined ? {} : { nodeName }) as Pod["spec"];
  return { ...pod, metadata, spec };
}
