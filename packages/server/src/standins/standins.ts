import type { Client, Clock, Controller } from "@agent-sandbox/kube";
import { openControllerTelemetry } from "../telemetry/controller-telemetry.ts";
import type { Logger } from "../telemetry/logger.ts";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import { binding } from "./binding/controller.ts";
import { type Caches, createCaches } from "./caches.ts";
import { endpointSlices } from "./endpoint-slices/controller.ts";
import { garbageCollection } from "./garbage-collection/controller.ts";
import { namespaceDeletion } from "./namespace-deletion/controller.ts";
import { podGarbage } from "./pod-garbage/controller.ts";
import { podSnapshotStandins } from "./pod-snapshots/controller.ts";
import { type QuotaUsed, resourceQuota } from "./resource-quota/controller.ts";
import { roleAggregation } from "./role-aggregation/controller.ts";
import { type RouterServiceOptions, routerService } from "./router-service/controller.ts";
import { serviceAccountsStandin } from "./service-accounts/controller.ts";
import type { StandinContext } from "./standin-context.ts";
import { volumeBinding } from "./volume-binding/controller.ts";

/** What main gives to the stand-ins. */
export interface StandinDeps {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  /** Goes into `kube-root-ca.crt` of every namespace. */
  readonly caBundlePem: string;
  readonly router: RouterServiceOptions;
  /** The function that admission books quota usage with. */
  readonly quotaUsed: QuotaUsed;
}

/** Every stand-in of the one-machine engine, with the caches they share. */
export interface Standins {
  readonly all: readonly Controller[];
  readonly caches: Caches;
  /** Runs caches and stand-ins until the signal aborts; resolves when the last pass has ended. */
  run(signal: AbortSignal): Promise<void>;
}

/** Builds the list that main starts. */
export function standins(deps: StandinDeps): Standins {
  const { client, clock, logger, metrics } = deps;
  const context: StandinContext = { client, clock, logger, telemetry: openControllerTelemetry(metrics, logger) };
  const caches = createCaches(context);
  const accounts = serviceAccountsStandin(context, caches, deps.caBundlePem);
  const router = routerService(context, caches, deps.router);
  const aggregation = roleAggregation(context);
  const podSnapshots = podSnapshotStandins(context, caches);
  const all: Controller[] = [
    garbageCollection(context, caches.everyObject),
    namespaceDeletion(context, caches),
    binding(context, caches),
    endpointSlices(context, caches),
    accounts,
    volumeBinding(context, caches),
    router,
    podGarbage(context, caches),
    resourceQuota(context, caches, deps.quotaUsed),
    aggregation,
    ...podSnapshots.controllers,
  ];
  const ownCaches = [...accounts.caches, ...aggregation.caches, ...podSnapshots.caches];
  return {
    all,
    caches,
    run: async (signal) => {
      const running = [caches, ...ownCaches, ...all].map((part) => part.run(signal));
      await Promise.all(running);
    },
  };
}
