import { type Clock, FairLimit } from "@agent-sandbox/kube";
import { RoutingError } from "../routing-error.ts";
import type { ActivityReporter } from "./activity.ts";
import type { SandboxRoute } from "./sandbox-route.ts";
import type { SandboxTable } from "./sandbox-table.ts";

/** What waking needs. */
export interface WakerOptions {
  readonly table: SandboxTable;
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

/** A client that was told "starting" should come back soon: starts take a second or two. */
const retryAfterSeconds = 1;

/** So many sleepers can be flooded before the callers of another notice; and even then it is woken for its first. */
const sandboxesSharing = 8;

/** A page in a browser opens so many connections at once, and several people may look at it. */
const heldPerSandboxMin = 64;

/** Longer than a report takes to come back through the watch, and a small part of the time that callers are held. */
const reportAgainAfterMs = 2_000;

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

  /** Resolves when the sandbox can be dialled; rejects with a RoutingError, or with the signal's reason. The signal is made only where the caller has to wait. */
  ready(namespace: string, name: string, signalOf: () => AbortSignal): ReadyRoute | Promise<ReadyRoute> {
    const route = this.#options.table.get(namespace, name);
    if (route === undefined) throw unknownSandbox(namespace, name);
    if (isReady(route)) {
      const begun = this.#options.activity.begin(route);
      if (begun === route) return route;
      return this.#afterReport(begun as Promise<SandboxRoute | undefined>, route, signalOf());
    }
    return this.#hold(route, signalOf());
  }

  async #afterReport(
    report: Promise<SandboxRoute | undefined>,
    asked: SandboxRoute,
    signal: AbortSignal,
  ): Promise<ReadyRoute> {
    const route = await report;
    if (route === undefined) throw unknownSandbox(asked.namespace, asked.name);
    return isReady(route) ? route : this.#hold(route, signal);
  }

  async #hold(route: SandboxRoute, signal: AbortSignal): Promise<ReadyRoute> {
    refuseUnlessComing(route);
    const key = `${route.namespace}/${route.name}`;
    if (!this.#held.tryTake(key)) throw starting("too many requests wait for sandboxes to start");
    // A held caller is activity: a start that takes longer than the timeout must not end in sleep.
    const endUse = this.#options.activity.track(route, "waiting");
    try {
      return await this.#wait(route, signal);
    } finally {
      this.#held.give(key);
      endUse();
    }
  }

  #wait(first: SandboxRoute, signal: AbortSignal): Promise<ReadyRoute> {
    const { table, activity, clock, holdLimitMs } = this.#options;
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
        if (route === undefined) return settle(() => reject(unknownSandbox(namespace, name)));
        if (isReady(route)) return settle(() => resolve(route));
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
      const stopTimer = clock.setTimer(holdLimitMs, () =>
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
