import { binding } from "./binding/controller.ts";
import { type Caches, createCaches } from "./caches.ts";
import { endpointSlices } from "./endpoint-slices/controller.ts";
import { garbageCollection } from "./garbage-collection/controller.ts";
import { namespaceDeletion } from "./namespace-deletion/controller.ts";
import { podGarbage } from "./pod-garbage/controller.ts";
import { type QuotaUsed, resourceQuota } from "./resource-quota/controller.ts";
import { roleAggregation } from "./role-aggregation/controller.ts";
import { type RouterServiceOptions, routerService } from "./router-service/controller.ts";
import { serviceAccountsStandin } from "./service-accounts/controller.ts";
import type { Standin, StandinContext } from "./standin.ts";
import { volumeBinding } from "./volume-binding/controller.ts";

/** What main gives to the stand-ins. */
export interface StandinDeps extends StandinContext {
  /** Goes into `kube-root-ca.crt` of every namespace. */
  readonly caBundlePem: string;
  readonly router: RouterServiceOptions;
  /** The function that admission books quota usage with. */
  readonly quotaUsed: QuotaUsed;
}

/** Every stand-in of the one-machine engine, with the caches they share. */
export interface Standins {
  readonly all: readonly Standin[];
  readonly caches: Caches;
  /** Runs caches and stand-ins until the signal aborts; resolves when the last pass has ended. */
  run(signal: AbortSignal): Promise<void>;
}

/** Builds the list that main starts. */
export function standins(deps: StandinDeps): Standins {
  const caches = createCaches(deps);
  const accounts = serviceAccountsStandin(deps, caches, deps.caBundlePem);
  const router = routerService(deps, caches, deps.router);
  const aggregation = roleAggregation(deps);
  const all: Standin[] = [
    garbageCollection(deps, caches.everyObject),
    namespaceDeletion(deps, caches),
    binding(deps, caches),
    endpointSlices(deps, caches),
    accounts,
    volumeBinding(deps, caches),
    router,
    podGarbage(deps, caches),
    resourceQuota(deps, caches, deps.quotaUsed),
    aggregation,
  ];
  const ownCaches = [...accounts.caches, ...aggregation.caches];
  return {
    all,
    caches,
    run: async (signal) => {
      const running = [caches, ...ownCaches, ...all].map((part) => part.run(signal));
      await Promise.all(running);
    },
  };
}
