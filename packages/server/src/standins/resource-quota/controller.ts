import { type KubeObject, keyOf, type ResourceQuota, resourceQuotas, semanticEqual } from "@agent-sandbox/api";
import { type Controller, defineController, done } from "@agent-sandbox/kube";
import { byNamespace, type Caches } from "../caches.ts";
import { onChange } from "../on-change.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";

/** One object with its place in the API. */
export interface CountedObject {
  readonly group: string;
  readonly resource: string;
  readonly object: KubeObject;
}

/** Sums up what objects use of what a quota limits; the same function that admission books with. */
export type QuotaUsed = (quota: ResourceQuota, objects: Iterable<CountedObject>) => Record<string, string>;

/** The status a quota should have. */
function planQuotaStatus(
  quota: ResourceQuota,
  objects: Iterable<CountedObject>,
  quotaUsed: QuotaUsed,
): NonNullable<ResourceQuota["status"]> {
  return { hard: { ...quota.spec?.hard }, used: quotaUsed(quota, objects) };
}

/** Counts anew what admission booked, so that what was deleted or refused later is given back. Keys are quotas. */
export function resourceQuota(context: StandinContext, caches: Caches, quotaUsed: QuotaUsed): Controller {
  const { quotas, pods, claims, services, everyObject } = caches;
  const objectsIn = (namespace: string): CountedObject[] => [
    ...pods.byIndex(byNamespace, namespace).map((object) => ({ group: "", resource: "pods", object })),
    ...claims
      .byIndex(byNamespace, namespace)
      .map((object) => ({ group: "", resource: "persistentvolumeclaims", object })),
    ...services.byIndex(byNamespace, namespace).map((object) => ({ group: "", resource: "services", object })),
    ...everyObject
      .inNamespace(namespace)
      .map(({ resource, object }) => ({ group: resource.group, resource: resource.resource, object }))
      .filter(
        ({ group, resource }) => group !== "" || !["pods", "persistentvolumeclaims", "services"].includes(resource),
      ),
  ];
  return defineController({
    name: "resource-quota",
    clock: context.clock,
    telemetry: context.telemetry,
    workers: standinWorkers,
    caches: [quotas, pods, claims, services, everyObject],
    observe: (queue) => {
      const wake = (namespace: string | undefined) => {
        for (const quota of quotas.byIndex(byNamespace, namespace ?? "")) queue.add(keyOf(quota));
      };
      onChange(quotas, (quota) => queue.add(keyOf(quota)));
      for (const cache of [pods, claims, services])
        cache.addHandler({ onUpdate: (_old, { metadata }) => wake(metadata.namespace) });
      everyObject.onChange(({ object }) => wake(object.metadata.namespace));
    },
    reconcile: async (key, signal) => {
      const quota = quotas.get(key);
      if (quota === undefined || quota.metadata.deletionTimestamp !== undefined) return done;
      const status = planQuotaStatus(quota, objectsIn(quota.metadata.namespace ?? ""), quotaUsed);
      if (semanticEqual(status, quota.status)) return done;
      // The version makes a booking that this count has not seen win: the next pass counts it.
      await context.client.update(resourceQuotas, { ...quota, status }, { subresource: "status", signal });
      return { kind: "done", actions: 1 };
    },
  });
}
