import type { Container, Pod } from "@agent-sandbox/api";
import { type Clock, delay } from "@agent-sandbox/kube";
import type { ProbeDialers } from "../probes/probe-check.ts";
import { isInjected, sandboxdPort } from "./sandboxd-launch.ts";

/** The daemon listens within milliseconds of its start; one that does not by then is worth an event. */
const answerWithinMs = 10_000;

/** Pauses between dials: short while a daemon is expected any moment, then longer, because each dial costs the sandbox something. */
const pauseSoonMs = 3;
const soonMs = 200;
const pauseLateMs = 50;
const pauseOverdueMs = 1_000;

/** A dial that is neither taken nor refused by then is made again: the first one may be sent before the sandbox has its link up. */
const dialTimeoutMs = 250;

/** Once it is overdue a daemon may take longer to answer one dial. */
const dialTimeoutOverdueMs = 5_000;

/** One run of a container whose daemon has the port. */
export interface DaemonRun {
  readonly hostId: string;
  readonly address: string;
  /** The daemon has said itself that it serves; what is left to see is that its address leads to it. */
  readonly hasSaidSo: boolean;
  /** Aborts when the run is over. */
  readonly over: AbortSignal;
  readonly onAnswer: () => void;
  /** Called once when the daemon is overdue. */
  readonly onOverdue: () => void;
}

/** Whether a container is ready only once its daemon answers: a client that sees it ready sends traffic at once. */
export function servesDaemon(pod: Pod, container: Container): boolean {
  return isInjected(pod) && servingContainer(pod) === container.name;
}

/** The container whose daemon has the port: the one a client means when it names none. */
export function servingContainer(pod: Pod): string | undefined {
  const chosen = pod.metadata.annotations?.["kubectl.kubernetes.io/default-container"];
  const names = (pod.spec?.containers ?? []).map(({ name }) => name);
  return names.find((name) => name === chosen) ?? names[0];
}

/** Knows which daemons answer. Bound: one watch per running container that serves. */
export class DaemonWatch {
  readonly #dialers: ProbeDialers;
  readonly #clock: Clock;
  readonly #answering = new Set<string>();
  readonly #watched = new Map<string, Promise<void>>();

  constructor({ dialers, clock }: { readonly dialers: ProbeDialers; readonly clock: Clock }) {
    this.#dialers = dialers;
    this.#clock = clock;
  }

  /** Host ids of runs whose daemon has answered. */
  get answering(): ReadonlySet<string> {
    return this.#answering;
  }

  /** Takes the word of an earlier agent that saw a run answer. */
  adopt(hostId: string): void {
    this.#answering.add(hostId);
  }

  /** Dials a run's daemon until it answers or the run is over; resolves then. */
  watch(run: DaemonRun): Promise<void> {
    const known = this.#watched.get(run.hostId);
    if (known !== undefined || this.#answering.has(run.hostId)) return known ?? Promise.resolve();
    const watched = this.#dialUntilAnswered(run).finally(() => this.#watched.delete(run.hostId));
    this.#watched.set(run.hostId, watched);
    return watched;
  }

  forget(hostId: string): void {
    this.#answering.delete(hostId);
  }

  async #dialUntilAnswered(run: DaemonRun): Promise<void> {
    const startMs = this.#clock.nowMs();
    let isOverdue = false;
    while (!run.over.aborted) {
      if (await this.#isAnswered(run, isOverdue ? dialTimeoutOverdueMs : dialTimeoutMs)) {
        if (run.over.aborted) return;
        this.#answering.add(run.hostId);
        run.onAnswer();
        return;
      }
      const waitedMs = this.#clock.nowMs() - startMs;
      if (!isOverdue && waitedMs >= answerWithinMs) {
        isOverdue = true;
        run.onOverdue();
      }
      const pauseMs = waitedMs < soonMs ? pauseSoonMs : isOverdue ? pauseOverdueMs : pauseLateMs;
      await delay(this.#clock, pauseMs, run.over).catch(() => undefined);
    }
  }

  async #isAnswered({ address, hasSaidSo, over }: DaemonRun, timeoutMs: number): Promise<boolean> {
    const signal = AbortSignal.any([over, AbortSignal.timeout(timeoutMs)]);
    const check = { scheme: "http", host: address, port: sandboxdPort, path: "/v1/health", headers: [] } as const;
    // A connection costs a fraction of a request, and nothing of the daemon's time.
    const asked = hasSaidSo ? this.#dialers.tcp(address, sandboxdPort, signal) : this.#dialers.http(check, signal);
    const answer = await asked.catch(() => undefined);
    return answer?.isOk === true;
  }
}
