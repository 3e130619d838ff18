import { type ChildProcess, spawn } from "node:child_process";
import { closeSync } from "node:fs";
import type { Logger } from "../telemetry/logger.ts";
import { childEnvironment } from "./child-environment.ts";
import { openForAppend } from "./root-files.ts";

/** One process the supervisor keeps alive. */
export interface ProcessSpec {
  readonly name: string;
  readonly program: string;
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Output is appended here; a pipe would tie the process to its supervisor. */
  readonly logFile: string;
  /** Resolves when the process does its job; rejects with the signal's reason. */
  readonly waitReady: (child: ChildProcess, signal: AbortSignal) => Promise<void>;
}

// A process that dies at once is tried again soon at first, so that a crash costs little, then rarely, so that a broken one costs little.
const restartDelayMinMs = 200;
const restartDelayMaxMs = 10_000;
/** A process that lived this long was healthy: its next crash starts over at the shortest delay. */
const healthyAfterMs = 30_000;
/** Longer than a graceful close of all connections takes, a fifth of the time that `down` waits for all roles. */
const stopGraceMs = 8_000;

/** Starts a process and starts it again whenever it ends, until it is stopped. */
export class SupervisedProcess {
  readonly #spec: ProcessSpec;
  readonly #logger: Logger;
  readonly #stopping = new AbortController();
  #child: ChildProcess | undefined;
  #loop: Promise<void> | undefined;
  #delayMs = restartDelayMinMs;

  constructor(spec: ProcessSpec, logger: Logger) {
    this.#spec = spec;
    this.#logger = logger.child({ process: spec.name });
  }

  /** The pid while it runs. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Resolves when the process is ready for the first time; rejects when it ends before that. */
  async start(): Promise<void> {
    const first = Promise.withResolvers<void>();
    this.#loop = this.#keepAlive(first);
    await first.promise;
  }

  /** Ends the process: SIGTERM, then SIGKILL after a grace period. */
  async stop(): Promise<void> {
    this.#stopping.abort(new Error(`${this.#spec.name} is being stopped`));
    const child = this.#child;
    if (child?.exitCode === null && child.signalCode === null) {
      const killer = setTimeout(() => child.kill("SIGKILL"), stopGraceMs);
      child.kill("SIGTERM");
      await new Promise((resolve) => child.once("exit", resolve));
      clearTimeout(killer);
    }
    await this.#loop;
  }

  async #keepAlive(first: PromiseWithResolvers<void>): Promise<void> {
    const { signal } = this.#stopping;
    let isFirst = true;
    while (!signal.aborted) {
      const startedMs = performance.now();
      const ended = this.#runOnce(isFirst ? first : undefined);
      const how = await ended;
      if (isFirst)
        first.reject(new Error(`${this.#spec.name} ended before it was ready (${how}); see ${this.#spec.logFile}`));
      isFirst = false;
      if (signal.aborted) return;
      if (performance.now() - startedMs > healthyAfterMs) this.#delayMs = restartDelayMinMs;
      this.#logger.warn({ how, delayMs: this.#delayMs }, "process ended; starting it again");
      await delay(this.#delayMs, signal);
      this.#delayMs = Math.min(this.#delayMs * 2, restartDelayMaxMs);
    }
  }

  /** Runs the process until it ends and says how it did. */
  async #runOnce(first: PromiseWithResolvers<void> | undefined): Promise<string> {
    const child = this.#spawn();
    this.#child = child;
    const ended = new AbortController();
    const exit = new Promise<string>((resolve) => {
      child.once("error", (error) => resolve(error.message));
      child.once("exit", (code, signal) => resolve(signal ?? `exit code ${code}`));
    });
    const ready = this.#spec.waitReady(child, AbortSignal.any([ended.signal, this.#stopping.signal]));
    ready.then(
      () => {
        this.#logger.info({ pid: child.pid }, "process is ready");
        first?.resolve();
      },
      (error: unknown) => {
        if (ended.signal.aborted || this.#stopping.signal.aborted) return;
        this.#logger.error({ err: error }, "process is not ready");
        first?.reject(error);
      },
    );
    const how = await exit;
    ended.abort(new Error(`${this.#spec.name} ended`));
    return how;
  }

  #spawn(): ChildProcess {
    const log = openForAppend(this.#spec.logFile);
    try {
      return spawn(this.#spec.program, this.#spec.args, {
        stdio: ["ignore", log, log, "ipc"],
        env: { ...childEnvironment(process.env), ...this.#spec.env },
        // A terminal's Ctrl-C goes to the supervisor alone, which ends the others in order.
        detached: true,
      });
    } finally {
      closeSync(log);
    }
  }
}

function delay(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
