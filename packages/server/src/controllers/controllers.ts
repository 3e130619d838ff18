import type { Client, Clock, Controller, RequestPriority } from "@agent-sandbox/kube";
import { openControllerTelemetry } from "../telemetry/controller-telemetry.ts";
import type { Logger } from "../telemetry/logger.ts";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import { type AliasCaches, openAliasCaches } from "./alias-translation/caches.ts";
import { aliasControllers } from "./alias-translation/controller.ts";
import { type Caches, openCaches } from "./caches.ts";
import { claimController } from "./claim-binding/controller.ts";
import type { ControllerConfig } from "./config.ts";
import { type ControllerMetrics, openControllerMetrics } from "./controller-metrics.ts";
import { type EventRecorder, openEventRecorder } from "./event-recorder.ts";
import type { ExtensionContext } from "./extension-context.ts";
import { archiveController } from "./sandbox-archive/controller.ts";
import { collectSandboxes } from "./sandbox-gauge.ts";
import type { SandboxContext } from "./sandbox-lifecycle/context.ts";
import { sandboxController } from "./sandbox-lifecycle/controller.ts";
import { snapshotController } from "./snapshot-upkeep/controller.ts";
import { templateController } from "./template-network-policy/controller.ts";
import { warmPoolController } from "./warm-pool-population/controller.ts";

/** What the controllers are made of. */
export interface ControllerDeps {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  readonly config: ControllerConfig;
  /** Between 0 and 1; default `Math.random`. */
  readonly random?: () => number;
}

/** All controllers of a process with their shared caches. Start it while leading; make a new one for the next term. */
export interface ControllerSet {
  readonly controllers: readonly Controller[];
  readonly caches: Caches;
  /** Whether every cache has its first list. */
  hasSynced(): boolean;
  /** Nothing is queued or being worked on; waits for a time do not count. */
  isIdle(): boolean;
  /** Fills the caches, then works until the signal aborts; resolves when the last pass has ended. */
  run(signal: AbortSignal): Promise<void>;
}

/** Wires caches, controllers and their watches; nothing is read or written before `run`. */
export function controllers(deps: ControllerDeps): ControllerSet {
  const { client, clock, logger, config, random = Math.random } = deps;
  const metrics = metricsOf(deps.metrics);
  const telemetry = openControllerTelemetry(deps.metrics, logger);
  const caches = openCaches({ client, clock, config, logger, random });
  const recorders: EventRecorder[] = [];
  const contextFor = (reportingController: string, priority: RequestPriority): SandboxContext => {
    const events = openEventRecorder({ client, clock, logger, random, reportingController });
    recorders.push(events);
    return { client: client.at(priority), caches, clock, random, config, metrics, telemetry, logger, events };
  };
  const set = [
    sandboxController(contextFor("sandbox-controller", "background")),
    snapshotController(contextFor("sandboxsnapshot-controller", "background")),
    archiveController(contextFor("sandboxarchive-controller", "background")),
  ];
  const { extensions } = caches;
  let aliases: AliasCaches | undefined;
  if (extensions !== undefined) {
    aliases = openAliasCaches({ client, clock, config, logger, random });
    const extend = (name: string, priority: RequestPriority): ExtensionContext => {
      return { ...contextFor(name, priority), extensions };
    };
    set.push(
      templateController(extend("sandboxtemplate-controller", "background")),
      warmPoolController(extend("sandboxwarmpool-controller", "background")),
      // Everything that it sends before a claim is Ready is what the claim waits for, also the POST of a Sandbox that no pool had.
      claimController(extend("sandboxclaim-controller", "urgent")),
      ...aliasControllers(extend, aliases),
    );
  }
  collectSandboxes(deps.metrics, () => (caches.sandboxes.informer.hasSynced ? caches.sandboxes.informer.list() : []));
  return {
    controllers: set,
    caches,
    hasSynced: () => caches.informers.every(({ hasSynced }) => hasSynced),
    isIdle: () => set.every(({ queue }) => queue.idle),
    run: async (signal) => {
      const unawaited = [caches.snapshots.informer, caches.archives.informer, ...(aliases?.informers ?? [])];
      await Promise.all([...caches.informers, ...unawaited, ...set].map((part) => part.run(signal)));
      await Promise.all(recorders.map((recorder) => recorder.flushed()));
    },
  };
}

/** Metrics outlive a term of leadership: a registry gets them once. */
const opened = new WeakMap<MetricsRegistry, ControllerMetrics>();

/** The controllers' metrics in this registry. */
export function metricsOf(registry: MetricsRegistry): ControllerMetrics {
  const present = opened.get(registry);
  if (present !== undefined) return present;
  const metrics = openControllerMetrics(registry);
  opened.set(registry, metrics);
  return metrics;
}
