import type { KubeObject } from "@agent-sandbox/api";
import {
  type Client,
  type Clock,
  type Informer,
  type Outcome,
  type PassReport,
  runController,
  type Synced,
  WorkQueue,
} from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";

/** A controller that stands in for a part of Kubernetes; main starts it on the one-machine engine only. */
export interface Standin {
  readonly name: string;
  /** For `settled()` in tests and for metrics. */
  readonly queue: WorkQueue;
  /** Works until the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
}

/** What every stand-in gets. */
export interface StandinContext {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The parts of one stand-in. */
export interface StandinOptions {
  readonly name: string;
  readonly context: StandinContext;
  /** Registers handlers that add keys; called once, before any cache runs. */
  readonly observe: (queue: WorkQueue) => void;
  readonly caches: readonly Synced[];
  readonly reconcile: (key: string, signal: AbortSignal) => Promise<Outcome>;
  /** Keys worked on at once; default 4: passes wait for the API, not for the processor. */
  readonly workers?: number;
}

/** Builds a stand-in out of its reconciler and what wakes it. */
export function defineStandin({ name, context, observe, caches, reconcile, workers = 4 }: StandinOptions): Standin {
  const queue = new WorkQueue<string>({ clock: context.clock });
  observe(queue);
  const onPass = (report: PassReport) => logPass(context.logger, report);
  return {
    name,
    queue,
    run: (signal) => runController({ name, queue, reconcile, clock: context.clock, workers, caches, onPass, signal }),
  };
}

function logPass(logger: Logger, { error, outcome, ...rest }: PassReport): void {
  if (outcome === "failed" || outcome === "terminal") logger.warn({ ...rest, outcome, err: error }, "pass failed");
  else logger.debug({ ...rest, outcome }, "pass");
}

/** Calls `wake` for every change of every object: add, update and delete alike, because a pass looks at the state alone. */
export function onChange<T extends KubeObject>(informer: Informer<T>, wake: (object: T) => void): void {
  informer.addHandler({
    onAdd: (object) => wake(object),
    onUpdate: (_old, object) => wake(object),
    onDelete: (last) => wake(last),
  });
}

/** The outcome of a pass with nothing more to do. */
export const done: Outcome = { kind: "done" };

/** Splits a queue key into namespace and name; cluster-scoped objects have an empty namespace. */
export function splitKey(key: string): { namespace: string; name: string } {
  const at = key.indexOf("/");
  return at < 0 ? { namespace: "", name: key } : { namespace: key.slice(0, at), name: key.slice(at + 1) };
}
