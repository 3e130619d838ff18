import { annotationKeys, formatTimestampMs, ignore, namespacedKey, sandboxes } from "@agent-sandbox/api";
import type { Client, Clock } from "@agent-sandbox/kube";
import type { SandboxRoute } from "./sandbox-route.ts";
import type { SandboxTable } from "./sandbox-table.ts";

/** A quarter of the timeout between two reports bounds both the writes and how much too early a busy sandbox could look idle. */
const reportsPerTimeout = 4;

/** What a report may take before a sandbox could fall asleep behind the request that it is made for: ages, for an API that answers at all. */
const reportMsMax = 10_000;

/** How long a caller of an awake sandbox waits for a report: many times what one takes, and a delay that a caller bears. */
const patienceMs = 1_000;

/** For how long requests do not wait for a report after one that failed or did not come: the next would wait in vain as well. */
const awayMs = 5_000;

/** Longer than a report takes to come back through the watch, and a small part of the time that callers are held. */
export const reportAgainAfterMs = 2_000;

/** What activity reporting needs. */
export interface ActivityOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly table: SandboxTable;
  readonly onError: (error: unknown) => void;
}

/** What is open to a sandbox. */
interface OpenUse {
  /** All of it. */
  count: number;
  /** Those of them who wait for it to be awake. */
  waiting: number;
  readonly route: SandboxRoute;
}

/**
 * Tells the API that sandboxes are in use, as seldom as the plan can bear.
 *
 * Invariant: while the API answers, a request is forwarded to an awake sandbox only while the API knows of activity younger
 * than half its timeout, or after this very request was reported to the API. The controller falls asleep only after the whole
 * timeout and announces it with a write that fails if the object changed, so a request can never meet a sandbox that was put
 * to sleep behind its back.
 *
 * While the API does not answer, an awake sandbox is served all the same. No controller can put it to sleep through an API that is
 * away for all; one that is away for this router alone may hear from the controller and not from us, and then the exchange
 * ends with the Pod. What was not reported is owed: it is tried again until it is heard, by when a controller that comes back
 * with the API is still reading what there is.
 */
export class ActivityReporter {
  readonly #options: ActivityOptions;
  /** One report under way per sandbox: later callers share it. */
  readonly #pending = new Map<string, Promise<SandboxRoute | undefined>>();
  /** Sandboxes with open exchanges, and how many; they are in use although nothing new arrives. */
  readonly #open = new Map<string, OpenUse>();

  /** Reports that failed, one per sandbox; told again by `refreshOpen`. */
  readonly #owed = new Map<string, SandboxRoute>();
  #awayUntilMs = Number.NEGATIVE_INFINITY;

  constructor(options: ActivityOptions) {
    this.#options = options;
  }

  /**
   * Notes the start of an exchange. Resolves with the route to use: the same one at once where the API's knowledge is
   * fresh, else what the API answered to the report, else, without an answer, the same one.
   */
  begin(route: SandboxRoute): SandboxRoute | Promise<SandboxRoute | undefined> {
    const { inactivityTimeoutMs } = route;
    if (inactivityTimeoutMs === undefined) return route;
    const ageMs = this.#options.clock.nowMs() - route.reportedActivityMs;
    if (ageMs * reportsPerTimeout < inactivityTimeoutMs) return route;
    const report = this.#reportOrOwe(route);
    if (ageMs * 2 < inactivityTimeoutMs && inactivityTimeoutMs - ageMs > reportMsMax) return route;
    return this.#options.clock.nowMs() < this.#awayUntilMs ? route : this.#patiently(report, route);
  }

  /** Resolves with the route as it was known where the report fails. */
  #reportOrOwe(route: SandboxRoute): Promise<SandboxRoute | undefined> {
    const key = namespacedKey(route.namespace, route.name);
    return this.report(route).then(
      (reported) => {
        this.#owed.delete(key);
        this.#awayUntilMs = Number.NEGATIVE_INFINITY;
        return reported;
      },
      (error: unknown) => {
        this.#owed.set(key, route);
        this.#awayUntilMs = this.#options.clock.nowMs() + awayMs;
        this.#options.onError(error);
        return route;
      },
    );
  }

  #patiently(report: Promise<SandboxRoute | undefined>, route: SandboxRoute): Promise<SandboxRoute | undefined> {
    const { clock } = this.#options;
    return new Promise((resolve) => {
      const stopTimer = clock.setTimer(patienceMs, () => {
        this.#awayUntilMs = clock.nowMs() + awayMs;
        resolve(route);
      });
      void report.then((reported) => {
        stopTimer();
        resolve(reported);
      });
    });
  }

  /** Counts an open exchange, or a caller who waits for one; call the result once when it ends. */
  track(route: SandboxRoute, kind: "open" | "waiting" = "open"): () => void {
    const key = namespacedKey(route.namespace, route.name);
    const entry = this.#open.get(key) ?? { count: 0, waiting: 0, route };
    entry.count += 1;
    if (kind === "waiting") entry.waiting += 1;
    this.#open.set(key, entry);
    return () => {
      entry.count -= 1;
      if (kind === "waiting") entry.waiting -= 1;
      if (entry.count > 0) return;
      this.#open.delete(key);
      // The last moment of use counts too: the timeout runs from the end of an exchange, not from its start.
      this.#refreshUsed(route, entry.waiting);
    };
  }

  /** Reports sandboxes whose exchanges are still open; to be called a few times per shortest timeout. */
  refreshOpen(): void {
    for (const [key, { namespace, name, uid }] of this.#owed) {
      const now = this.#options.table.get(namespace, name);
      // Put to sleep meanwhile: it has nothing to do with who used it before.
      if (now?.uid !== uid || now.state.kind !== "ready") this.#owed.delete(key);
      else void this.#reportOrOwe(now);
    }
    for (const open of this.#open.values()) {
      this.#refreshUsed(open.route, open.waiting);
      this.#wakeFrozen(open);
    }
  }

  /**
   * A sandbox has frozen: what is open to it counts as traffic that has come since, because it would get no answer otherwise. Those who wait for it report
   * themselves.
   */
  onFrozen({ namespace, name }: SandboxRoute): void {
    const open = this.#open.get(namespacedKey(namespace, name));
    if (open !== undefined) this.#wakeFrozen(open);
  }

  /** What is open to a Pod that is being put to sleep ends with it, and must not wake it: only who waits for it may. */
  #refreshUsed(route: SandboxRoute, waiting: number): void {
    const now = this.#options.table.get(route.namespace, route.name);
    if (now?.uid !== route.uid || (waiting === 0 && now.state.kind === "asleep")) return;
    void this.#refresh(now);
  }

  /** A report that was made in this very sleep is on its way to the controller; a while later it counts as lost, or as older than the suspension by another clock. */
  #wakeFrozen({ count, waiting, route }: OpenUse): void {
    const { clock, table, onError } = this.#options;
    const now = table.get(route.namespace, route.name);
    if (count === waiting || now?.uid !== route.uid) return;
    if (now.frozenSleep === undefined || now.state.kind !== "asleep") return;
    const ageMs = clock.nowMs() - now.reportedActivityMs;
    const isReported = now.reportedActivityMs >= Number(now.frozenSleep) && ageMs < reportAgainAfterMs;
    if (!isReported) void this.report(now).catch(onError);
  }

  /** Writes the present moment as the last activity; also what wakes a sleeping sandbox. */
  report(route: SandboxRoute): Promise<SandboxRoute | undefined> {
    const key = namespacedKey(route.namespace, route.name);
    const pending = this.#pending.get(key);
    if (pending !== undefined) return pending;
    const report = this.#write(route).finally(() => this.#pending.delete(key));
    this.#pending.set(key, report);
    return report;
  }

  #refresh(route: SandboxRoute): Promise<unknown> {
    const { inactivityTimeoutMs = Number.POSITIVE_INFINITY, reportedActivityMs } = route;
    const ageMs = this.#options.clock.nowMs() - reportedActivityMs;
    if (ageMs * reportsPerTimeout < inactivityTimeoutMs) return Promise.resolve();
    return this.report(route).catch(this.#options.onError);
  }

  async #write({ namespace, name, uid }: SandboxRoute): Promise<SandboxRoute | undefined> {
    const { client, clock, table } = this.#options;
    const at = formatTimestampMs(clock.nowMs());
    const sandbox = await client
      .patch(
        sandboxes,
        { namespace, name },
        { type: "merge", body: { metadata: { uid, annotations: { [annotationKeys.lastActivityAt]: at } } } },
        { fieldManager: "agent-sandbox-router", signal: AbortSignal.timeout(reportMsMax) },
      )
      // Deleted, or another sandbox of the same name since: there is nothing left to report.
      .catch(ignore("NotFound", "Conflict"));
    return sandbox === undefined ? undefined : table.observe(sandbox);
  }
}
