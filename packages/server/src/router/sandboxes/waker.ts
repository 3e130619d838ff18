import { namespacedKey } from "@agent-sandbox/api";
import { type Clock, FairLimit } from "@agent-sandbox/kube";
import { RoutingError } from "../routing-error.ts";
import { type ActivityReporter, reportAgainAfterMs } from "./activity.ts";
import type { ArchiveTable } from "./archive-table.ts";
import type { SandboxRoute } from "./sandbox-route.ts";
import type { SandboxTable } from "./sandbox-table.ts";

/** What waking needs. */
export interface WakerOptions {
  readonly table: SandboxTable;
  readonly archives: Pick<ArchiveTable, "find" | "recall">;
  readonly activity: ActivityReporter;
  readonly clock: Clock;
  /** How long a caller is held while its sandbox starts. */
  readonly holdLimitMs: number;
  /** How many callers may be held at once, over all sandboxes; more get 503 at once. One sandbox holds a part of them. */
  readonly heldMax: number;
}

/** The route of a sandbox that can be dialled. */
export interface ReadyRoute extends SandboxRoute {
  readonly state: Extract<SandboxRoute["state"], { kind: "ready" }>;
}

/** How a caller waits; without a limit, as long as callers are held. */
interface HowToWait {
  readonly isRetry?: boolean;
  readonly limitMs?: number;
}

/** A client that got the answer "starting" should come back soon: starts take a second or two. */
const retryAfterSeconds = 1;

/** So many sleepers can be flooded before the callers of another notice; and even then it is woken for its first. */
const sandboxesSharing = 8;

/** A page in a browser opens so many connections at once, and several people may look at it. */
const heldPerSandboxMin = 64;

/** Brings a request and an awake sandbox together: finds it, wakes it, waits for it, or says why not. */
export class Waker {
  readonly #options: WakerOptions;
  readonly #held: FairLimit;

  constructor(options: WakerOptions) {
    this.#options = options;
    const { heldMax } = options;
    const perHolderMax = Math.max(heldPerSandboxMin, Math.ceil(heldMax / sandboxesSharing));
    this.#held = new FairLimit({ perHolderMax: Math.min(perHolderMax, heldMax), totalMax: heldMax });
  }

  /** How many callers wait. */
  get held(): number {
    return this.#held.total;
  }

  /**
   * Resolves when the sandbox can be dialled; rejects with a RoutingError, or with the signal's reason. The signal is made only where the caller has to wait.
   * A frozen one that traffic has called back can be dialled at once: its connections are accepted when it goes on. A caller who dialled one in vain
   * comes back with `isRetry`, and waits until it is Ready.
   */
  ready(
    {
      namespace,
      name,
      isRetry = false,
    }: { readonly namespace: string; readonly name: string; readonly isRetry?: boolean },
    signalOf: () => AbortSignal,
  ): ReadyRoute | Promise<ReadyRoute> {
    const route = this.#options.table.get(namespace, name);
    if (route === undefined) return this.#recalled(namespace, name, signalOf);
    if (isReady(route)) {
      const begun = this.#options.activity.begin(route);
      if (begun === route) return route;
      return this.#afterReport(begun as Promise<SandboxRoute | undefined>, route, signalOf());
    }
    return this.#dialable(route, isRetry) ?? this.#hold(route, signalOf(), { isRetry });
  }

  /** The route, if it can be dialled now. */
  #dialable(route: SandboxRoute, isRetry = false): ReadyRoute | undefined {
    if (isReady(route)) return route;
    return isRetry ? undefined : thawing(route, this.#options.clock.nowMs());
  }

  /** What is in the archive comes back for who asks for it, who waits for that and for its start in one. */
  #recalled(namespace: string, name: string, signalOf: () => AbortSignal): Promise<ReadyRoute> {
    switch (this.#options.archives.find(namespace, name)) {
      case undefined:
        throw unknownSandbox(namespace, name);
      case "held":
        throw new RoutingError(
          409,
          `sandbox ${namespace}/${name} is archived; bring it back with agent-sandbox unarchive ${name}`,
        );
      case "recallable":
        return this.#comeBack(namespace, name, signalOf());
    }
  }

  async #comeBack(namespace: string, name: string, signal: AbortSignal): Promise<ReadyRoute> {
    const { table, archives, clock, holdLimitMs } = this.#options;
    const key = namespacedKey(namespace, name);
    if (!this.#held.tryTake(key)) throw starting("too many requests wait for sandboxes to start");
    const startedMs = clock.nowMs();
    const route = await this.#unlessGone(
      archives.recall(namespace, name).then(() => table.seen(namespace, name, holdLimitMs)),
      signal,
    ).finally(() => this.#held.give(key));
    if (route === undefined) throw starting(`sandbox ${namespace}/${name} is being brought back from the archive`);
    const limitMs = holdLimitMs - (clock.nowMs() - startedMs);
    return this.#dialable(route) ?? this.#hold(route, signal, { limitMs });
  }

  /** Where it left for the archive in the moment before it was reported, it comes back. */
  async #afterItLeft({ namespace, name }: SandboxRoute, signal: AbortSignal): Promise<ReadyRoute> {
    return this.#recalled(namespace, name, () => signal);
  }

  /** Rejects with the signal's reason as soon as the caller is gone. */
  #unlessGone<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      const onAbort = (): void => reject(signal.reason as Error);
      signal.addEventListener("abort", onAbort, { once: true });
      work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
    });
  }

  async #afterReport(
    report: Promise<SandboxRoute | undefined>,
    asked: SandboxRoute,
    signal: AbortSignal,
  ): Promise<ReadyRoute> {
    const route = await report;
    if (route === undefined) return this.#recalled(asked.namespace, asked.name, () => signal);
    return this.#dialable(route) ?? this.#hold(route, signal);
  }

  async #hold(route: SandboxRoute, signal: AbortSignal, how: HowToWait = {}): Promise<ReadyRoute> {
    refuseUnlessComing(route);
    const key = namespacedKey(route.namespace, route.name);
    if (!this.#held.tryTake(key)) throw starting("too many requests wait for sandboxes to start");
    // A held caller is activity: a start that takes longer than the timeout must not end in sleep.
    const endUse = this.#options.activity.track(route, "waiting");
    try {
      return await this.#wait(route, signal, how);
    } finally {
      this.#held.give(key);
      endUse();
    }
  }

  #wait(first: SandboxRoute, signal: AbortSignal, how: HowToWait): Promise<ReadyRoute> {
    const { table, activity, clock, holdLimitMs } = this.#options;
    const { isRetry = false, limitMs = holdLimitMs } = how;
    const { namespace, name } = first;
    let reportedMs = Number.NEGATIVE_INFINITY;
    let isOldPodLeaving = false;
    let stopAgain = (): void => undefined;
    return new Promise((resolve, reject) => {
      const settle = (act: () => void): void => {
        stopListening();
        stopTimer();
        stopAgain();
        signal.removeEventListener("abort", onAbort);
        act();
      };
      const look = (route: SandboxRoute | undefined): void => {
        if (route === undefined) return settle(() => resolve(this.#afterItLeft(first, signal)));
        const found = this.#dialable(route, isRetry);
        if (found !== undefined) return settle(() => resolve(found));
        // Woken while it falls asleep, a sandbox shows the end of the Pod that leaves before the start of the next one.
        if (route.state.kind === "asleep") isOldPodLeaving = true;
        else if (route.state.kind !== "finished") isOldPodLeaving = false;
        if (isOldPodLeaving && route.state.kind === "finished") return;
        try {
          refuseUnlessComing(route);
        } catch (error) {
          return settle(() => reject(error as Error));
        }
        // Our own report comes back as a change of a sandbox that is still asleep: it must not cause another report.
        if (route.state.kind !== "asleep" || clock.nowMs() - reportedMs < reportAgainAfterMs) return;
        reportedMs = clock.nowMs();
        activity.report(route).catch((error: unknown) => settle(() => reject(error as Error)));
        // A suspension that was stamped after the report has not seen it, and nothing else would change any more.
        stopAgain();
        stopAgain = clock.setTimer(reportAgainAfterMs, () => look(table.get(namespace, name)));
      };
      const onAbort = (): void => settle(() => reject(signal.reason as Error));
      const stopListening = table.listen(namespace, name, look);
      const stopTimer = clock.setTimer(Math.max(0, limitMs), () =>
        settle(() => reject(starting(describe(table.get(namespace, name) ?? first)))),
      );
      signal.addEventListener("abort", onAbort, { once: true });
      // What happened between the caller's look and the subscription must not be missed.
      look(table.get(namespace, name));
    });
  }
}

function isReady(route: SandboxRoute): route is ReadyRoute {
  return route.state.kind === "ready";
}

/** The route of one that served when it fell asleep, and that its node lets go on; after a while it counts as one that does not come back by itself. */
function thawing(route: SandboxRoute, nowMs: number): ReadyRoute | undefined {
  const { servedFrom, thawingSinceMs = Number.NEGATIVE_INFINITY } = route;
  if (servedFrom === undefined || nowMs - thawingSinceMs > reportAgainAfterMs) return undefined;
  return { ...route, state: { kind: "ready", addresses: servedFrom } };
}

/** Throws for every state that waiting cannot mend. */
function refuseUnlessComing({ namespace, name, state }: SandboxRoute): void {
  switch (state.kind) {
    case "ready":
    case "starting":
    case "asleep":
      return;
    case "held":
      throw new RoutingError(
        409,
        `sandbox ${namespace}/${name} is suspended by its owner; resume it with agent-sandbox resume ${name}`,
      );
    case "expired":
      throw new RoutingError(410, `sandbox ${namespace}/${name} has expired`);
    case "crash-loop":
      throw new RoutingError(502, `sandbox ${namespace}/${name} does not stay up: ${state.why}`);
    case "finished":
      throw new RoutingError(502, `sandbox ${namespace}/${name} has ended: ${state.why}`);
    default:
      throw new Error(`unknown route state ${JSON.stringify(state satisfies never)}`);
  }
}

/** There is none under that name. */
export function unknownSandbox(namespace: string, name: string): RoutingError {
  return new RoutingError(404, `no sandbox ${namespace}/${name}`);
}

function starting(why: string): RoutingError {
  return new RoutingError(503, why, { retryAfterSeconds });
}

function describe({ namespace, name, state }: SandboxRoute): string {
  const why = state.kind === "starting" ? state.why : "it is waking up";
  return `sandbox ${namespace}/${name} is not ready yet: ${why}`;
}
