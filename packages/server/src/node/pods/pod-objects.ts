import {
  type ConfigMap,
  configMaps,
  ignore,
  type KubeObject,
  type Pod,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  type Secret,
  secrets,
} from "@agent-sandbox/api";
import type { Client } from "@agent-sandbox/kube";
import type { FoundClaim } from "../volumes/plan-volumes.ts";

/** The objects a pod refers to, read for one pass. */
export interface PodObjects {
  readonly configMap: (name: string) => ConfigMap | undefined;
  readonly secret: (name: string) => Secret | undefined;
  readonly claim: (name: string) => FoundClaim | undefined;
}

/** Nothing at all, for a pass that starts nothing. */
export const noObjects: PodObjects = { configMap: () => undefined, secret: () => undefined, claim: () => undefined };

/** Reads every ConfigMap, Secret and claim a pod names, claims with the volumes they are bound to; absent ones are left out, and what needs them becomes an obstacle. */
export async function readPodObjects(client: Client, pod: Pod, signal: AbortSignal): Promise<PodObjects> {
  const namespace = pod.metadata.namespace ?? "";
  const names = referencedNames(pod);
  const [maps, secretsFound, claims] = await Promise.all([
    readAll({ client, resource: configMaps, namespace, names: names.configMaps, signal }),
    readAll({ client, resource: secrets, namespace, names: names.secrets, signal }),
    readAll({ client, resource: persistentVolumeClaims, namespace, names: names.claims, signal }),
  ]);
  const volumeNames = new Set([...claims.values()].flatMap(({ spec }) => spec?.volumeName ?? []));
  const volumes = await readAll({
    client,
    resource: persistentVolumes,
    namespace: undefined,
    names: volumeNames,
    signal,
  });
  return {
    configMap: (name) => maps.get(name),
    secret: (name) => secretsFound.get(name),
    claim: (name) => {
      const claim = claims.get(name);
      return claim && { claim, volume: volumes.get(claim.spec?.volumeName ?? "") };
    },
  };
}

interface ReadAll<T extends KubeObject> {
  readonly client: Client;
  readonly resource: Resource<T>;
  /** Undefined for a kind without namespaces. */
  readonly namespace: string | undefined;
  readonly names: ReadonlySet<string>;
  readonly signal: AbortSignal;
}

async function readAll<T extends KubeObject>({
  client,
  resource,
  namespace,
  names,
  signal,
}: ReadAll<T>): Promise<Map<string, T>> {
  const found = new Map<string, T>();
  await Promise.all(
    [...names].map(async (name) => {
      const object = await client
        .get(resource, namespace === undefined ? { name } : { namespace, name }, { signal })
        .catch(ignore("NotFound"));
      if (object !== undefined) found.set(name, object as T);
    }),
  );
  return found;
}

interface Names {
  readonly configMaps: Set<string>;
  readonly secrets: Set<string>;
  readonly claims: Set<string>;
}

/** Every name a pod refers to, by kind. */
function referencedNames(pod: Pod): Names {
  const names: Names = { configMaps: new Set(), secrets: new Set(), claims: new Set() };
  const add = (set: Set<string>, name: string | undefined): void => {
    if (name !== undefined && name !== "") set.add(name);
  };
  for (const { name } of pod.spec?.imagePullSecrets ?? []) add(names.secrets, name);
  for (const container of [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])]) {
    for (const { configMapRef, secretRef } of container.envFrom ?? []) {
      add(names.configMaps, configMapRef?.name);
      add(names.secrets, secretRef?.name);
    }
    for (const { valueFrom } of container.env ?? []) {
      add(names.configMaps, valueFrom?.configMapKeyRef?.name);
      add(names.secrets, valueFrom?.secretKeyRef?.name);
    }
  }
  for (const volume of pod.spec?.volumes ?? []) {
    add(names.configMaps, volume.configMap?.name);
    add(names.secrets, volume.secret?.secretName);
    add(names.claims, volume.persistentVolumeClaim?.claimName);
    if (volume.ephemeral !== undefined) add(names.claims, `${pod.metadata.name}-${volume.name}`);
    for (const source of volume.projected?.sources ?? []) {
      add(names.configMaps, source.configMap?.name);
      add(names.secrets, source.secret?.name);
    }
  }
  return names;
}
