import { type Controller, defineController } from "@agent-sandbox/kube";
import type { ExtensionContext } from "../extension-context.ts";
import { PoolReconciler } from "./reconcile.ts";
import { watchPools } from "./watch.ts";

/** Keeps every pool at its number of unclaimed members. Keys are pools. */
export function warmPoolController(context: ExtensionContext): Controller {
  const { clock, random, telemetry, caches, extensions, config } = context;
  const reconciler = new PoolReconciler(context);
  const isHere = (key: string): boolean => {
    const pool = extensions.pools.get(key);
    return pool !== undefined && pool.metadata.deletionTimestamp === undefined;
  };
  return defineController({
    name: "sandboxwarmpool",
    clock,
    random,
    telemetry,
    workers: config.warmPoolWorkers,
    caches: caches.informers,
    observe: (queue) => watchPools(context, queue),
    span: (key) => (isHere(key) ? { name: "ReconcileSandboxWarmPool" } : undefined),
    reconcile: (key, signal) => reconciler.reconcile(key, signal),
  });
}
