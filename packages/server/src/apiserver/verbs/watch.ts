import { ApiError, internalError } from "@agent-sandbox/api";
import type { StoreEvent, Watch } from "../../store/store.ts";
import { StoreError } from "../../store/store-error.ts";
import type { ApiResponse } from "../request/api-request.ts";
import { forbiddenField, invalidOptions, notSupported } from "../schema/field-error.ts";
import type { RequestScope } from "../scope/scope.ts";
import { listPrefix, objectKey } from "../storage/object-key.ts";
import { storeFailure } from "../storage/object-storage.ts";
import { listPage } from "./list.ts";
import { isTrue, type ListQuery, readListQuery } from "./list-query.ts";
import { EventEncoder, line, rowEventOf } from "./watch-events.ts";

/** A quiet watch gets a bookmark this often, as in Kubernetes, so that a client can resume cheaply. */
const bookmarkEveryMs = 60_000;

/** A watch without timeoutSeconds ends after this long; clients reconnect. */
const defaultTimeoutSeconds = 45 * 60;

/** GET of a collection with `watch`: a stream of events, one JSON document per line. */
export function watchVerb(scope: RequestScope): ApiResponse {
  const query = readListQuery(scope);
  const plan = planWatch(scope);
  return {
    status: 200,
    headers: { "content-type": "application/json", "cache-control": "no-cache, private" },
    body: streamEvents(scope, query, plan),
  };
}

interface WatchPlan {
  readonly sendsInitial: boolean;
  /** Whether the initial events end with a bookmark that says so. */
  readonly marksInitialEnd: boolean;
  readonly bookmarks: boolean;
  readonly timeoutMs: number;
}

function planWatch({ query }: RequestScope): WatchPlan {
  const initial = query.get("sendInitialEvents");
  const bookmarks = query.has("allowWatchBookmarks") && isTrue(query.get("allowWatchBookmarks"));
  const version = query.get("resourceVersion") ?? "";
  if (initial !== null && query.get("resourceVersionMatch") !== "NotOlderThan") {
    const match = query.get("resourceVersionMatch") ?? "";
    throw invalidOptions("ListOptions", [
      forbiddenField("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
      ...(match === "" ? [] : [notSupported("resourceVersionMatch", match, ["NotOlderThan"])]),
    ]);
  }
  const wantsInitial = initial !== null && isTrue(initial);
  const timeoutSeconds = Number(query.get("timeoutSeconds") ?? defaultTimeoutSeconds) || defaultTimeoutSeconds;
  return {
    sendsInitial: wantsInitial || (initial === null && (version === "" || version === "0")),
    marksInitialEnd: wantsInitial && bookmarks,
    bookmarks,
    timeoutMs: timeoutSeconds * 1000,
  };
}

async function* streamEvents(scope: RequestScope, query: ListQuery, plan: WatchPlan): AsyncGenerator<Uint8Array> {
  const encoder = new EventEncoder(scope);
  let watch: Watch | undefined;
  try {
    const start = startRevision(scope, query, plan);
    const page = plan.sendsInitial
      ? listPage(scope, { ...query, limit: undefined, cursor: undefined, isExact: false })
      : undefined;
    watch = scope.server.storage.store.watch({
      prefix: watchPrefix(scope, query),
      afterRevision: page?.revision ?? start,
    });
    for (const row of page?.rows ?? []) yield await encoder.encode({ type: "ADDED", row });
    if (plan.marksInitialEnd) yield encoder.bookmark(page?.revision ?? start, { "k8s.io/initial-events-end": "true" });
    yield* pump({ scope, query, plan, watch, encoder });
  } catch (error) {
    yield line({ type: "ERROR", object: wireError(error).toStatus() });
  } finally {
    watch?.close();
  }
}

/** Where a watch without initial events begins. */
function startRevision(scope: RequestScope, query: ListQuery, plan: WatchPlan): number {
  const newest = scope.server.storage.store.revision;
  const asked = query.revision ?? 0;
  if (asked > newest) throw new StoreError("future-revision", `${asked}, current: ${newest}`);
  return asked === 0 || plan.sendsInitial ? newest : asked;
}

function watchPrefix(scope: RequestScope, query: ListQuery): string {
  if (query.onlyName !== undefined && scope.definition.namespaced === (scope.namespace !== "")) {
    return objectKey(scope.definition, { namespace: scope.namespace, name: query.onlyName });
  }
  return listPrefix(scope.definition, scope.namespace);
}

function wireError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return error instanceof StoreError ? storeFailure(error) : internalError(String(error), error);
}

interface Pump {
  readonly scope: RequestScope;
  readonly query: ListQuery;
  readonly plan: WatchPlan;
  readonly watch: Watch;
  readonly encoder: EventEncoder;
}

/** Sends events until the client goes, the time is up or the store ends the watch; bookmarks fill the silence. */
async function* pump({ scope, query, plan, watch, encoder }: Pump): AsyncGenerator<Uint8Array> {
  using deadline = watchDeadline(scope, plan, watch);
  const batches = watch[Symbol.asyncIterator]();
  let pending = batches.next();
  let lastMark = watch.revision;
  for (;;) {
    const next = await deadline.race(pending);
    if (next === "bookmark") {
      if (plan.bookmarks && watch.revision > 0) yield encoder.bookmark(Math.max(watch.revision, lastMark));
      lastMark = watch.revision;
      continue;
    }
    if (next.done === true) {
      // The client comes back to where the bookmark says, instead of to the last event it saw.
      if (plan.bookmarks && watch.revision > 0) yield encoder.bookmark(Math.max(watch.revision, lastMark));
      return;
    }
    pending = batches.next();
    // Not awaited until the next turn; a rejection in between is this loop's to report.
    pending.catch(() => undefined);
    const bytes = await encodeBatch({ scope, query, encoder }, next.value);
    if (bytes !== undefined) yield bytes;
  }
}

async function encodeBatch(
  { scope, query, encoder }: Pick<Pump, "scope" | "query" | "encoder">,
  batch: readonly StoreEvent[],
): Promise<Uint8Array | undefined> {
  const parts: Uint8Array[] = [];
  for (const event of batch) {
    const rowEvent = rowEventOf(scope, event, query.matches);
    if (rowEvent !== undefined) parts.push(await encoder.encode(rowEvent));
  }
  if (parts.length === 0) return undefined;
  return parts.length === 1 ? parts[0] : Buffer.concat(parts);
}

interface Deadline extends Disposable {
  race<T>(pending: Promise<T>): Promise<T | "bookmark">;
}

/** Closes the watch at its timeout or when the request is aborted, and rings for bookmarks. */
function watchDeadline(scope: RequestScope, plan: WatchPlan, watch: Watch): Deadline {
  const { clock } = scope.server;
  const close = (): void => watch.close();
  const stopTimer = clock.setTimer(plan.timeoutMs, close);
  scope.request.signal?.addEventListener("abort", close, { once: true });
  if (scope.request.signal?.aborted === true) close();
  return {
    async race(pending) {
      if (!plan.bookmarks) return pending;
      let stop = (): void => undefined;
      const rung = new Promise<"bookmark">((resolve) => {
        stop = clock.setTimer(bookmarkEveryMs, () => resolve("bookmark"));
      });
      try {
        return await Promise.race([pending, rung]);
      } finally {
        stop();
      }
    },
    [Symbol.dispose]() {
      stopTimer();
      scope.request.signal?.removeEventListener("abort", close);
    },
  };
}
