import { ApiError, type KubeObject, type Resource } from "@agent-sandbox/api";
import { backoffMs, watchBackoff } from "./backoff.ts";
import type { Client, SelectOptions } from "./client.ts";
import { type Clock, delay } from "./clock.ts";

/** Where a reflector delivers. Calls are synchronous and in order. */
export interface ReflectorSink<T> {
  /** The whole state, after a list. */
  replace(objects: readonly T[], resourceVersion: string): void;
  /** One change; `gone` means that the object was deleted and this is its last state. */
  apply(object: T, change: "changed" | "gone", resourceVersion: string): void;
}

/** What to mirror, and how. */
export interface ReflectorOptions<T extends KubeObject> {
  readonly client: Client;
  readonly resource: Resource<T>;
  readonly select?: Omit<SelectOptions, "signal">;
  readonly sink: ReflectorSink<T>;
  /** Applied to each object as it arrives, so that a long list is never held whole; may change and return its argument. */
  readonly transform?: (object: T) => T;
  readonly clock: Clock;
  readonly random?: () => number;
  /** Objects per page of a list; default 500. */
  readonly pageSize?: number;
  /** A failed list or watch, before the wait that follows it. */
  readonly onError?: (error: unknown) => void;
  readonly signal: AbortSignal;
}

/** What kubectl and client-go ask for, so that servers are tuned for it. */
const pageSizeDefault = 500;

/** Watches are renewed after five to ten minutes, spread so that a fleet of clients does not come back at once. */
const watchSecondsMin = 300;

/** A server that has not ended the watch this long after it promised to is taken for dead. */
const watchGraceMs = 30_000;

/** A watch that ends sooner than this without an event is a failure, else a server that closes at once would be asked in a tight loop. */
const watchShortMs = 1_000;

/**
 * Mirrors a resource until the signal aborts: lists, watches from there, resumes from the newest version seen
 * (bookmarks included), lists again when the server no longer has that version.
 */
export async function runReflector<T extends KubeObject>(options: ReflectorOptions<T>): Promise<void> {
  const { clock, random = Math.random, onError, signal } = options;
  let failures = 0;
  let position: string | undefined;
  while (!signal.aborted) {
    try {
      position ??= await list(options);
      const watched = await watch(options, position);
      position = watched.position;
      failures = watched.productive ? 0 : failures + 1;
    } catch (error) {
      if (signal.aborted) return;
      const broken = error instanceof WatchBroken ? error : undefined;
      const cause = broken?.cause ?? error;
      position = isGone(cause) ? undefined : (broken?.position ?? position);
      failures = broken?.productive === true ? 1 : failures + 1;
      onError?.(cause);
    }
    // The first renewal or relist is immediate: a watch that expired is everyday life.
    if (failures > 1) await delay(clock, waitMs(failures - 2, random), signal).catch(() => undefined);
  }
}

function waitMs(failures: number, random: () => number): number {
  return backoffMs(failures, watchBackoff, random);
}

async function list<T extends KubeObject>(options: ReflectorOptions<T>): Promise<string> {
  const { client, resource, select, sink, transform = same, pageSize = pageSizeDefault, signal } = options;
  const objects: T[] = [];
  let next: string | undefined;
  for (;;) {
    const page = await client.list(resource, {
      ...select,
      limit: pageSize,
      priority: "stream",
      ...(next !== undefined && { continue: next }),
      signal,
    });
    for (const item of page.items) objects.push(transform(item));
    next = page.metadata.continue;
    if (next !== undefined && next !== "") continue;
    const { resourceVersion = "" } = page.metadata;
    sink.replace(objects, resourceVersion);
    return resourceVersion;
  }
}

interface Watched {
  readonly position: string;
  /** Whether it delivered anything or lasted; otherwise the next attempt waits. */
  readonly productive: boolean;
}

/** Keeps how far a watch came when it breaks, so that the next one resumes there. */
class WatchBroken extends Error implements Watched {
  readonly position: string;
  readonly productive: boolean;
  constructor({ position, productive }: Watched, cause: unknown) {
    super("watch broke", { cause });
    this.position = position;
    this.productive = productive;
  }
}

async function watch<T extends KubeObject>(options: ReflectorOptions<T>, start: string): Promise<Watched> {
  const { client, resource, select, sink, transform = same, clock, random = Math.random, signal } = options;
  const startMs = clock.nowMs();
  let position = start;
  let seen = false;
  const timeoutSeconds = Math.round(watchSecondsMin * (1 + random()));
  const overdue = new AbortController();
  const dispose = clock.setTimer(timeoutSeconds * 1_000 + watchGraceMs, () => {
    overdue.abort(new Error(`watch of ${resource.resource} is overdue; the server is taken for dead`));
  });
  const watched = (): Watched => ({ position, productive: seen || clock.nowMs() - startMs >= watchShortMs });
  const events = client.watch(resource, {
    ...select,
    resourceVersion: start,
    allowWatchBookmarks: true,
    timeoutSeconds,
    signal: AbortSignal.any([signal, overdue.signal]),
  });
  try {
    for await (const event of events) {
      if (event.type === "ERROR") throw ApiError.fromStatus(event.object, 500);
      seen = true;
      const version = event.object.metadata.resourceVersion ?? position;
      position = version;
      if (event.type === "BOOKMARK") continue;
      sink.apply(transform(event.object), event.type === "DELETED" ? "gone" : "changed", version);
    }
  } catch (error) {
    if (signal.aborted) throw error;
    throw new WatchBroken(watched(), error);
  } finally {
    dispose();
  }
  return watched();
}

function same<T>(object: T): T {
  return object;
}

/** 410 under either name; the state has to be listed afresh. */
function isGone(error: unknown): boolean {
  return error instanceof ApiError && error.status === 410;
}
