import { ApiError } from "@agent-sandbox/api";
import type { BackoffOptions } from "./backoff.ts";
import type { Clock } from "./clock.ts";
import {
  type ControllerMeter,
  type ControllerTelemetry,
  type PassOutcome,
  type PassSpan,
} from "./controller-telemetry.ts";
import { MeteredQueue } from "./metered-queue.ts";
import type { WorkQueue } from "./work-queue.ts";

/** How a pass ended, as its reconciler sees it; a failure is thrown, or returned where it comes with a deadline. `actions` is for the log line. */
export type Outcome =
  | { readonly kind: "done"; readonly actions?: number }
  | { readonly kind: "requeue-after"; readonly afterMs: number; readonly actions?: number }
  /** Tried again by backoff as a thrown error is, but in `withinMs` at the latest, however long the backoff has grown. */
  | { readonly kind: "failed"; readonly error: unknown; readonly withinMs?: number; readonly actions?: number };

/** The outcome of a pass with nothing more to do. */
export const done: Outcome = { kind: "done" };

/** Thrown by a reconciler when trying again cannot help: the key rests until something changes. Exported for tests. */
export class TerminalError extends Error {
  override readonly name = "TerminalError";
}

/** Anything that has to be filled before a controller may act; an `Informer` is one. */
export interface Synced {
  synced(signal: AbortSignal): Promise<void>;
}

/** A controller's parts. */
export interface ControllerOptions<K> {
  /** Names it in metrics and log lines; unique within a process. */
  readonly name: string;
  readonly clock: Clock;
  /** Between 0 and 1; spreads retries and makes pass ids. Default `Math.random`. */
  readonly random?: () => number;
  /** Keys worked on at once; default 1. */
  readonly workers?: number;
  /** No pass begins before all of these are filled. */
  readonly caches?: readonly Synced[];
  /** Registers what adds keys, each with its priority; called once, before any cache runs. */
  readonly observe?: (queue: WorkQueue<K>) => void;
  /** One pass over one key. `signal` aborts at the pass's deadline and when the controller stops. */
  readonly reconcile: (key: K, signal: AbortSignal) => Promise<Outcome>;
  /** The span of the pass over a key; undefined from it, or no such option: none. */
  readonly span?: (key: K) => PassSpan | undefined;
  /** Between tries of a key whose passes fail; default 5 ms doubling to 60 s. */
  readonly backoff?: BackoffOptions;
  /** Default 30 s. */
  readonly passTimeoutMs?: number;
  /** Default: none. */
  readonly telemetry?: ControllerTelemetry;
}

/** A reconciler with its queue, its workers and its metrics. */
export interface Controller<K = string> {
  readonly name: string;
  readonly workers: number;
  /** Written by `observe` and by the end of a pass; read by tests that wait until it is idle. */
  readonly queue: WorkQueue<K>;
  /** Works until the signal aborts: passes under way are aborted, and it resolves when the last one has ended. Runs once. */
  run(signal: AbortSignal): Promise<void>;
}

/** Long enough for a pass of thirty-two slow writes, short enough that a hung server does not hold a worker for long. */
const passTimeoutDefaultMs = 30_000;

/** Builds a controller, a stand-in or a loop of the node out of its reconciler and what wakes it; nothing is worked on before `run`. */
export function defineController<K = string>(options: ControllerOptions<K>): Controller<K> {
  const { name, clock, random = Math.random, workers = 1, backoff, observe, telemetry = silentTelemetry } = options;
  const meter = telemetry.open({
    name,
    workers,
    depth: () => queue.length,
    workingSeconds: () => queue.workingSeconds(),
  });
  const queue = new MeteredQueue<K>({ clock, random, meter, ...(backoff !== undefined && { backoff }) });
  observe?.(queue);
  return { name, workers, queue, run: (signal) => run({ ...options, random, workers, queue, meter, signal }) };
}

interface RunOptions<K> extends ControllerOptions<K> {
  readonly random: () => number;
  readonly workers: number;
  readonly queue: WorkQueue<K>;
  readonly meter: ControllerMeter;
  readonly signal: AbortSignal;
}

async function run<K>(options: RunOptions<K>): Promise<void> {
  const { caches = [], workers, queue, signal } = options;
  try {
    await Promise.all(caches.map((cache) => cache.synced(signal)));
  } catch (error) {
    if (signal.aborted) return;
    throw error;
  }
  // One listener for all passes: a signal looks through all of its listeners whenever one comes or goes.
  const passes = new Set<AbortController>();
  const onStop = (): void => {
    for (const pass of passes) pass.abort(signal.reason);
  };
  signal.addEventListener("abort", onStop, { once: true });
  await Promise.all(Array.from({ length: workers }, () => work({ ...options, passes })));
  signal.removeEventListener("abort", onStop);
  queue.close();
}

interface WorkOptions<K> extends RunOptions<K> {
  /** Those under way. Bound: the workers. */
  readonly passes: Set<AbortController>;
}

async function work<K>(options: WorkOptions<K>): Promise<void> {
  const { queue, signal } = options;
  while (!signal.aborted) {
    let key: K;
    try {
      key = await queue.take(signal);
    } catch {
      return; // Only the signal ends a take.
    }
    await runPass(key, options);
  }
}

type PassEnd =
  | Exclude<Outcome, { readonly kind: "failed" }>
  | {
      readonly kind: Exclude<PassOutcome, "done" | "requeue-after">;
      readonly error: unknown;
      readonly withinMs?: number;
      readonly actions?: number;
    };

async function runPass<K>(key: K, options: WorkOptions<K>): Promise<void> {
  const { name, queue, clock, meter, random } = options;
  const passId = hexWord(random) + hexWord(random);
  const startMs = clock.nowMs();
  meter.passBegan();
  const end = await reconcileOnce(key, options);
  const retryAfterMs = settle(key, end, queue);
  queue.done(key);
  meter.passEnded({
    controller: name,
    key: String(key),
    passId,
    outcome: end.kind,
    durationMs: clock.nowMs() - startMs,
    ...(end.actions !== undefined && { actions: end.actions }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    ...("error" in end && { error: end.error }),
  });
}

/** The one place where the end of a pass becomes a queue operation. Returns the wait where there is one. */
function settle<K>(key: K, end: PassEnd, queue: WorkQueue<K>): number | undefined {
  switch (end.kind) {
    case "done":
      queue.forget(key);
      return undefined;
    case "terminal":
      queue.forget(key);
      if (end.withinMs !== undefined) queue.addAfter(key, end.withinMs);
      return end.withinMs;
    case "requeue-after":
      queue.forget(key);
      queue.addAfter(key, end.afterMs);
      return end.afterMs;
    // A conflict means that our view was old; the first wait of the backoff is what the cache needs to catch up.
    case "conflict":
    case "failed": {
      // A server that says when to come back knows better than the backoff, which still applies where it is longer.
      const askedMs = end.error instanceof ApiError ? (end.error.retryAfterSeconds ?? 0) * 1_000 : 0;
      const retryMs = queue.retry(key, { delayMinMs: askedMs });
      if (end.withinMs === undefined) return retryMs;
      queue.addAfter(key, end.withinMs);
      return Math.min(retryMs, end.withinMs);
    }
    case "cancelled":
      return undefined;
    default:
      return end satisfies never;
  }
}

async function reconcileOnce<K>(key: K, options: WorkOptions<K>): Promise<PassEnd> {
  const { reconcile, span, meter, clock, signal, passes, passTimeoutMs = passTimeoutDefaultMs } = options;
  // A signal that aborted between the take and here tells no listener any more; another process may already lead.
  if (signal.aborted) return { kind: "cancelled", error: signal.reason };
  const pass = new AbortController();
  passes.add(pass);
  const dispose = clock.setTimer(passTimeoutMs, () => {
    pass.abort(new Error(`pass over ${String(key)} exceeded its deadline of ${passTimeoutMs} ms`));
  });
  try {
    const traced = span?.(key);
    const outcome = await (traced === undefined
      ? reconcile(key, pass.signal)
      : meter.inSpan(traced, async (fail) => {
          const result = await reconcile(key, pass.signal);
          if (result.kind === "failed") fail(result.error);
          return result;
        }));
    return outcome.kind === "failed" ? { ...outcome, kind: classify(outcome.error, signal) } : outcome;
  } catch (error) {
    return { kind: classify(error, signal), error };
  } finally {
    dispose();
    passes.delete(pass);
  }
}

function classify(error: unknown, signal: AbortSignal): "conflict" | "terminal" | "failed" | "cancelled" {
  if (signal.aborted) return "cancelled";
  if (error instanceof TerminalError) return "terminal";
  if (error instanceof ApiError && error.reason === "Conflict") return "conflict";
  return "failed";
}

/** Eight hexadecimal digits: a pass id joins log lines and keeps no secret, so it needs no better randomness. */
function hexWord(random: () => number): string {
  return Math.floor(random() * 2 ** 32)
    .toString(16)
    .padStart(8, "0");
}

/** What a controller without telemetry tells its passes to. */
const silentTelemetry: ControllerTelemetry = {
  open: () => ({
    keyAdded: () => undefined,
    keyRetried: () => undefined,
    keyTaken: () => undefined,
    keyDone: () => undefined,
    passBegan: () => undefined,
    passEnded: () => undefined,
    inSpan: (_span, work) => work(() => undefined),
  }),
};
