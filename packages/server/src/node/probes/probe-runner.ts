import type { Container, Probe } from "@agent-sandbox/api";
import type { Clock, Disposer } from "@agent-sandbox/kube";
import { type CheckResult, checkProbe, type ProbeDialers, type ProbeTarget } from "./probe-check.ts";
import type { ProbeVerdict } from "./probe-verdict.ts";

/** The three probes a container may have. */
export type ProbeName = "startup" | "liveness" | "readiness";

/** One container's probes, for as long as one run of it lasts. */
export interface ProbeRunnerOptions {
  readonly container: Container;
  readonly target: ProbeTarget;
  readonly dialers: ProbeDialers;
  readonly clock: Clock;
  /** The verdict changed. */
  readonly onChange: () => void;
  readonly onFailure: (probe: ProbeName, result: CheckResult) => void;
  /** An earlier agent saw the container ready: startup and readiness count as passed until a check says otherwise. */
  readonly wasReady?: boolean;
}

interface ProbeState {
  readonly name: ProbeName;
  readonly probe: Probe;
  successes: number;
  failures: number;
  /** Undefined until the thresholds have decided for the first time. */
  passed: boolean | undefined;
  timer: Disposer | undefined;
}

/** Runs the probes of one run of a container: startup first, the other two once it has passed. */
export class ProbeRunner {
  readonly #options: ProbeRunnerOptions;
  readonly #states: ProbeState[] = [];
  readonly #stop = new AbortController();
  /** Aborts the checks under way when the container is made to stand still; another one for the time after. */
  #pause = new AbortController();

  constructor(options: ProbeRunnerOptions) {
    this.#options = options;
    const { startupProbe, livenessProbe, readinessProbe } = options.container;
    const wasReady = options.wasReady === true;
    const add = (name: ProbeName, probe: Probe | undefined): void => {
      if (probe !== undefined)
        this.#states.push({
          name,
          probe,
          successes: 0,
          failures: 0,
          passed: wasReady && name !== "liveness" ? true : undefined,
          timer: undefined,
        });
    };
    add("startup", startupProbe);
    add("liveness", livenessProbe);
    add("readiness", readinessProbe);
  }

  start(): void {
    const isHeld = this.#isHeld();
    for (const state of this.#states) {
      if ((state.name === "startup") === isHeld) this.#schedule(state, (state.probe.initialDelaySeconds ?? 0) * 1000);
    }
  }

  stop(): void {
    this.#stop.abort(new Error("the container is stopping"));
    for (const state of this.#states) state.timer?.();
  }

  /** Makes no check and counts none until `resume`: a container that stands still answers nothing, and is not ill. */
  pause(): void {
    this.#pause.abort(new Error("the container stands still"));
    for (const state of this.#states) state.timer?.();
  }

  /** Goes on with the verdict as it was; the next check of each probe comes after one period. */
  resume(): void {
    if (!this.#pause.signal.aborted) return;
    this.#pause = new AbortController();
    const isHeld = this.#isHeld();
    for (const state of this.#states) {
      if ((state.name === "startup") === isHeld) this.#schedule(state, (state.probe.periodSeconds ?? 10) * 1000);
    }
  }

  /** Whether the other probes wait for the startup probe. */
  #isHeld(): boolean {
    const startup = this.#state("startup");
    return startup !== undefined && startup.passed !== true;
  }

  verdict(): ProbeVerdict {
    const startup = this.#state("startup");
    const isStarted = startup === undefined || startup.passed === true;
    const readiness = this.#state("readiness");
    const isReady = isStarted && (readiness === undefined || readiness.passed === true);
    const failed = this.#states.find(({ name, passed }) => name !== "readiness" && passed === false);
    if (failed === undefined || failed.name === "readiness") return { isStarted, isReady };
    const grace = failed.probe.terminationGracePeriodSeconds;
    return {
      isStarted,
      isReady,
      failure: { probe: failed.name, ...(grace !== undefined && { graceMs: grace * 1000 }) },
    };
  }

  #state(name: ProbeName): ProbeState | undefined {
    return this.#states.find((state) => state.name === name);
  }

  #schedule(state: ProbeState, afterMs: number): void {
    if (this.#stop.signal.aborted || this.#pause.signal.aborted) return;
    state.timer = this.#options.clock.setTimer(afterMs, () => void this.#try(state));
  }

  async #try(state: ProbeState): Promise<void> {
    const { target, dialers, clock, onFailure } = this.#options;
    const timeout = new AbortController();
    const cancel = clock.setTimer((state.probe.timeoutSeconds ?? 1) * 1000, () =>
      timeout.abort(new Error("probe timed out")),
    );
    const paused = this.#pause.signal;
    const signal = AbortSignal.any([timeout.signal, this.#stop.signal, paused]);
    const result = await checkProbe(state.probe, target, dialers, signal);
    cancel();
    if (this.#stop.signal.aborted || paused.aborted) return;
    if (!result.isOk) onFailure(state.name, result);
    this.#count(state, result.isOk);
    const isDone = state.name === "startup" && state.passed !== undefined;
    if (!isDone) this.#schedule(state, (state.probe.periodSeconds ?? 10) * 1000);
  }

  #count(state: ProbeState, isOk: boolean): void {
    const before = state.passed;
    state.successes = isOk ? state.successes + 1 : 0;
    state.failures = isOk ? 0 : state.failures + 1;
    if (state.successes >= (state.probe.successThreshold ?? 1)) state.passed = true;
    else if (state.failures >= (state.probe.failureThreshold ?? 3)) state.passed = false;
    if (state.passed === before) return;
    if (state.name === "startup" && state.passed === true) this.#releaseHeld();
    this.#options.onChange();
  }

  #releaseHeld(): void {
    for (const state of this.#states) {
      if (state.name !== "startup") this.#schedule(state, (state.probe.initialDelaySeconds ?? 0) * 1000);
    }
  }
}
