import { type Client, type Clock, type Outcome, type PassReport, runController } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import { type Caches, openCaches } from "./caches.ts";
import { ClaimController } from "./claim-binding/controller.ts";
import { watchClaims } from "./claim-binding/watch.ts";
import type { ControllerConfig } from "./config.ts";
import { type ControllerMetrics, countPass, openControllerMetrics } from "./controller-metrics.ts";
import { type EventRecorder, openEventRecorder } from "./event-recorder.ts";
import type { ExtensionContext } from "./extension-context.ts";
import type { MeteredQueue } from "./metered-queue.ts";
import { collectQueues } from "./queue-gauge.ts";
import { collectSandboxes } from "./sandbox-gauge.ts";
import type { SandboxContext } from "./sandbox-lifecycle/context.ts";
import { SandboxController, watchSandboxes } from "./sandbox-lifecycle/controller.ts";
import { TemplateController, watchTemplates } from "./template-network-policy/controller.ts";
import { WarmPoolController, watchPools } from "./warm-pool-population/controller.ts";

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

/** One controller of the set. */
export interface Controller {
  readonly name: string;
  readonly queue: MeteredQueue;
  readonly workers: number;
  readonly reconcile: (key: string, signal: AbortSignal) => Promise<Outcome>;
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
  const caches = openCaches({ client, clock, config, logger, random });
  const recorders: EventRecorder[] = [];
  const contextFor = (reportingController: string): SandboxContext => {
    const events = openEventRecorder({ client, clock, logger, random, reportingController });
    recorders.push(events);
    return { client, caches, clock, config, metrics, logger, events };
  };
  const sandboxContext = contextFor("sandbox-controller");
  const sandbox = new SandboxController(sandboxContext, random);
  watchSandboxes(sandboxContext, sandbox.queue);
  const set: Controller[] = [{ ...parts(sandbox), workers: config.sandboxWorkers }];
  if (caches.extensions !== undefined) {
    const { extensions } = caches;
    const extend = (name: string): ExtensionContext => ({ ...contextFor(name), extensions, random });
    set.push(...extensionControllers(extend, config));
  }
  collectSandboxes(deps.metrics, () => (caches.sandboxes.informer.hasSynced ? caches.sandboxes.informer.list() : []));
  collectQueues(deps.metrics, () => set);
  return {
    controllers: set,
    caches,
    hasSynced: () => caches.all.every((mirror) => mirror.informer.hasSynced),
    isIdle: () => set.every(({ queue }) => queue.idle),
    run: (signal) => run(set, caches, { clock, logger, metrics, recorders, random }, signal),
  };
}

function extensionControllers(extend: (name: string) => ExtensionContext, config: ControllerConfig): Controller[] {
  const templateContext = extend("sandboxtemplate-controller");
  const template = new TemplateController(templateContext);
  watchTemplates(templateContext, template.queue);
  const poolContext = extend("sandboxwarmpool-controller");
  const pool = new WarmPoolController(poolContext);
  watchPools(poolContext, pool.queue);
  const claim = new ClaimController(extend("sandboxclaim-controller"));
  watchClaims(claim.context, claim.queue);
  return [
    { ...parts(template), workers: Math.max(1, config.templateWorkers) },
    { ...parts(pool), workers: config.warmPoolWorkers },
    { ...parts(claim), workers: config.claimWorkers },
  ];
}

function parts({ name, queue, reconcile }: Omit<Controller, "workers">): Omit<Controller, "workers"> {
  return { name, queue, reconcile };
}

interface RunParts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: ControllerMetrics;
  readonly recorders: readonly EventRecorder[];
  readonly random: () => number;
}

async function run(set: readonly Controller[], caches: Caches, parts: RunParts, signal: AbortSignal): Promise<void> {
  const { clock, logger, metrics, recorders, random } = parts;
  const newPassId = (): string => hexWord(random) + hexWord(random);
  const informers = caches.all.map((mirror) => mirror.informer);
  const running = informers.map((informer) => informer.run(signal));
  const working = set.map(({ name, queue, workers, reconcile }) => {
    metrics.workersMax.set({ controller: name }, workers);
    const onPass = (report: PassReport): void => {
      countPass(metrics, report);
      logPass(logger, report);
    };
    metrics.workersActive.set({ controller: name }, 0);
    const guarded = async (key: string, pass: AbortSignal): Promise<Outcome> => {
      // A key that was handed out as the term ended must not be worked on: somebody else may lead already.
      signal.throwIfAborted();
      metrics.workersActive.inc({ controller: name });
      try {
        return await reconcile(key, pass);
      } finally {
        metrics.workersActive.dec({ controller: name });
      }
    };
    const reconciler = { name, queue, workers, reconcile: guarded, clock, caches: informers };
    return runController({ ...reconciler, onPass, newPassId, signal });
  });
  await Promise.all([...running, ...working]);
  await Promise.all(recorders.map((recorder) => recorder.flushed()));
}

/** Eight hexadecimal digits: a pass id joins log lines and keeps no secret, so it needs no better randomness. */
function hexWord(random: () => number): string {
  return Math.floor(random() * 2 ** 32)
    .toString(16)
    .padStart(8, "0");
}

function logPass(logger: Logger, report: PassReport): void {
  const { error, ...fields } = report;
  if (report.outcome === "failed" || report.outcome === "terminal")
    logger.warn({ ...fields, err: error }, "pass failed");
  else logger.debug(fields, "pass ended");
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
