import { ApiError } from "@agent-sandbox/api";
import type { Clock } from "./clock.ts";
import type { WorkQueue } from "./work-queue.ts";

/** How a pass ended, as its reconciler sees it; a failure is thrown. `actions` is for the log line. */
export type Outcome =
  | { readonly kind: "done"; readonly actions?: number }
  | { readonly kind: "requeue-after"; readonly afterMs: number; readonly actions?: number };

/** Thrown by a reconciler when trying again cannot help: the key rests until something changes. */
export class TerminalError extends Error {
  override readonly name = "TerminalError";
}

/** The names of outcomes in metrics and logs: a closed set. */
export type PassOutcome = "done" | "requeue-after" | "conflict" | "terminal" | "failed" | "cancelled";

/** What happened in one pass: one log line, one observation. */
export interface PassReport {
  readonly controller: string;
  readonly key: string;
  readonly passId: string;
  readonly outcome: PassOutcome;
  readonly durationMs: number;
  readonly actions?: number;
  /** When the key comes back by itself. */
  readonly retryAfterMs?: number;
  readonly error?: unknown;
}

/** Anything that has to be filled before a controller may act; an `Informer` is one. */
export interface Synced {
  synced(signal: AbortSignal): Promise<void>;
}

/** A controller's parts. */
export interface ControllerOptions<K> {
  readonly name: string;
  readonly queue: WorkQueue<K>;
  /** One pass over one key. `signal` aborts at the pass's deadline and when the controller stops. */
  readonly reconcile: (key: K, signal: AbortSignal) => Promise<Outcome>;
  readonly clock: Clock;
  /** Keys worked on at once; default 1. */
  readonly workers?: number;
  /** No pass begins before all of these are filled. */
  readonly caches?: readonly Synced[];
  /** Default 30 s. */
  readonly passTimeoutMs?: number;
  /** Called after each pass; writes the log line and the metrics. Must not throw. */
  readonly onPass?: (report: PassReport) => void;
  /** Default 16 random hexadecimal digits. */
  readonly newPassId?: () => string;
  /** Stops the controller: passes under way are aborted and awaited. */
  readonly signal: AbortSignal;
}

/** Long enough for a pass of thirty-two slow writes, short enough that a hung server does not hold a worker for long. */
const passTimeoutDefaultMs = 30_000;

/** Runs a controller until its signal aborts; resolves when the last pass has ended. */
export async function runController<K>(options: ControllerOptions<K>): Promise<void> {
  const { caches = [], workers = 1, queue, signal } = options;
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

interface WorkOptions<K> extends ControllerOptions<K> {
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
  | Outcome
  | {
      readonly kind: "conflict" | "terminal" | "failed" | "cancelled";
      readonly error: unknown;
      readonly actions?: number;
    };

async function runPass<K>(key: K, options: WorkOptions<K>): Promise<void> {
  const { name, queue, clock, onPass, newPassId = randomPassId } = options;
  const passId = newPassId();
  const startMs = clock.nowMs();
  const end = await reconcileOnce(key, options);
  const retryAfterMs = settle(key, end, queue);
  queue.done(key);
  onPass?.({
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
    case "terminal":
      queue.forget(key);
      return undefined;
    case "requeue-after":
      queue.forget(key);
      queue.addAfter(key, end.afterMs);
      return end.afterMs;
    // A conflict means that our view was old; the first wait of the backoff is what the cache needs to catch up.
    case "conflict":
    case "failed": {
      // A server that says when to come back knows better than the backoff, which still applies where it is longer.
      const askedMs = end.error instanceof ApiError ? (end.error.retryAfterSeconds ?? 0) * 1_000 : 0;
      return queue.retry(key, { delayMinMs: askedMs });
    }
    case "cancelled":
      return undefined;
    default:
      return end satisfies never;
  }
}

async function reconcileOnce<K>(key: K, options: WorkOptions<K>): Promise<PassEnd> {
  const { reconcile, clock, signal, passes, passTimeoutMs = passTimeoutDefaultMs } = options;
  // A signal that aborted between the take and here tells no listener any more.
  if (signal.aborted) return { kind: "cancelled", error: signal.reason };
  const pass = new AbortController();
  passes.add(pass);
  const dispose = clock.setTimer(passTimeoutMs, () => {
    pass.abort(new Error(`pass over ${String(key)} exceeded its deadline of ${passTimeoutMs} ms`));
  });
  try {
    return await reconcile(key, pass.signal);
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

/** Names a line in a log, so it need not be unguessable. */
function randomPassId(): string {
  return randomHex() + randomHex();
}

function randomHex(): string {
  return Math.floor(Math.random() * 2 ** 32)
    .toString(16)
    .padStart(8, "0");
}
