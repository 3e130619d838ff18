import { isSandboxError } from "../errors/sandbox-error.ts";
import type { ConnectClient } from "../plane/connect-client.ts";
import { pauseFor } from "../timing/pause.ts";
import { withinCommandTime } from "./command-deadline.ts";
import { type EventSource, type FindEnd, followProcess, type ProcessEvent } from "./event-stream.ts";
import { loginShell } from "./login-shell.ts";
import { randomKey } from "./random-key.ts";
import { repeatUntilAnswered } from "./repeat-until-answered.ts";
import { runCommand } from "./run-command.ts";
import {
  type Command,
  type PtyOptions,
  type RunOptions,
  requestTimeoutDefaultMs,
  type SpawnOptions,
  wireSpecOf,
} from "./run-options.ts";
import { type ExitStatus, exitStatusOf, type RunResult } from "./run-result.ts";
import { type ProcessParts, SandboxProcess } from "./sandbox-process.ts";
import { startDeadline } from "./start-deadline.ts";
import { processService, type WireProcess, type WireSpec } from "./wire.ts";

/** A process that runs, or that the sandbox still remembers. */
export interface ProcessInfo {
  readonly id: string;
  readonly pid: number;
  readonly command: readonly string[];
  readonly cwd: string;
  readonly user: string;
  readonly tag: string;
  readonly hasTerminal: boolean;
  readonly startedAt: Date | undefined;
  /** Absent while it runs. */
  readonly exit: ExitStatus | undefined;
}

/** What the processes of a sandbox need besides their client. */
export interface ProcessesOptions {
  /** Makes idempotency keys. */
  readonly newKey?: (() => string) | undefined;
  readonly findEnd?: FindEnd | undefined;
}

/** Everything about processes of one sandbox. */
export class Processes {
  readonly #client: ConnectClient;
  readonly #newKey: () => string;
  readonly #findEnd: FindEnd | undefined;

  constructor(client: ConnectClient, { newKey = randomKey, findEnd }: ProcessesOptions = {}) {
    this.#client = client;
    this.#newKey = newKey;
    this.#findEnd = findEnd;
  }

  /** Runs a command to its end. */
  run(command: Command, options: RunOptions = {}): Promise<RunResult> {
    return runCommand((...start) => this.start(...start), command, options);
  }

  /** Starts a process; resolves when it runs. Standard input is open until `stdin.end()`. */
  spawn(command: Command, options: SpawnOptions = {}): Promise<SandboxProcess> {
    return this.start({ ...wireSpecOf(command, options), stdin: true }, options);
  }

  /** Starts a process with a terminal; everything it prints comes on `stdout`. Default command: a login shell. */
  pty(command: Command = loginShell, options: PtyOptions = {}): Promise<SandboxProcess> {
    const { cols, rows } = options.size ?? { cols: 80, rows: 24 };
    return this.start({ ...wireSpecOf(command, options), terminal: { cols, rows } }, options);
  }

  /** Follows a process that was started before, from the output at `fromOffset` on. `"entrypoint"` is the sandbox's own. */
  attach(
    id: string,
    options: { readonly fromOffset?: number; readonly signal?: AbortSignal } = {},
  ): Promise<SandboxProcess> {
    const { fromOffset = 0, signal } = options;
    return this.#follow({ kind: "attach", id, fromOffset }, { ...(signal !== undefined && { signal }) });
  }

  /** Lists processes, oldest first. */
  async list(options: { readonly runningOnly?: boolean; readonly signal?: AbortSignal } = {}): Promise<ProcessInfo[]> {
    const { runningOnly = false, signal } = options;
    const method = `${processService}/List`;
    const { processes = [] } = await this.#client.unary<{ processes?: WireProcess[] }>(
      method,
      { runningOnly },
      { signal },
    );
    return processes.map(infoOf);
  }

  /** Keeps a program running under a name, in place of what ran under it before; resolves when it runs for the first time. */
  async startService(service: string, command: Command, options: SpawnOptions = {}): Promise<void> {
    const spec = wireSpecOf(command, options);
    const source = { kind: "start", spec, idempotencyKey: this.#newKey(), killOnDisconnect: false, service } as const;
    const { signal: _signal, ...rest } = options;
    (await this.#follow(source, rest)).detach();
  }

  /** Ends a service and starts it no more. */
  async endService(name: string, options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    await this.#client.unary(`${processService}/EndService`, { name }, { signal: options.signal });
  }

  /** Starts from a wire spec; `spawn`, `pty` and `run` differ only in it. */
  start(spec: WireSpec, options: SpawnOptions, onOutput?: ProcessParts["onOutput"]): Promise<SandboxProcess> {
    const source = { kind: "start", spec, idempotencyKey: this.#newKey(), killOnDisconnect: false } as const;
    return this.#follow(source, options, onOutput);
  }

  async #follow(
    source: EventSource,
    { signal, requestTimeoutMs = requestTimeoutDefaultMs, commandTimeoutMs }: SpawnOptions,
    onOutput?: ProcessParts["onOutput"],
  ): Promise<SandboxProcess> {
    signal?.throwIfAborted();
    const deadline = startDeadline(requestTimeoutMs, signal);
    const [client, findEnd] = [this.#client, this.#findEnd];
    const followed = followProcess({ client, source, signal: deadline.signal, pause: pauseFor, findEnd });
    const events =
      commandTimeoutMs === undefined
        ? followed
        : withinCommandTime(followed, { commandTimeoutMs, giveUp: deadline.cancel });
    const process = await firstProcess(events, deadline).catch(async (error: unknown) => {
      if (source.kind === "start" && mayHaveStarted(error)) await this.#cancelStart(source.idempotencyKey);
      throw error;
    });
    return new SandboxProcess({ client: this.#client, process, events, signal, detach: deadline.cancel, onOutput });
  }

  /** Ends the process of a start that was given up, or keeps it from beginning, by the start's key: there is no process id yet. */
  #cancelStart(idempotencyKey: string): Promise<void> {
    const method = `${processService}/Cancel`;
    return repeatUntilAnswered((signal) => this.#client.unary(method, { idempotencyKey }, { signal }));
  }
}

/** Whether a start that failed like this may be carried out all the same: no answer said that it was not. */
function mayHaveStarted(error: unknown): boolean {
  return !isSandboxError(error) || ["request-timeout", "connection-lost", "unavailable", "closed"].includes(error.code);
}

async function firstProcess(
  events: AsyncGenerator<ProcessEvent>,
  deadline: ReturnType<typeof startDeadline>,
): Promise<WireProcess> {
  try {
    const first = await events.next();
    deadline.met();
    if (first.done === true || first.value.kind !== "started") throw new Error("bug: a process stream without a start");
    return first.value.process;
  } catch (error) {
    deadline.cancel();
    throw error;
  }
}

function infoOf(wire: WireProcess): ProcessInfo {
  const { id = "", pid = 0, command = [], cwd = "", user = "", tag = "", terminal = false, startedAt, exit } = wire;
  return {
    id,
    pid,
    command,
    cwd,
    user,
    tag,
    hasTerminal: terminal,
    startedAt: startedAt === undefined ? undefined : new Date(startedAt),
    exit: exit === undefined ? undefined : exitStatusOf(exit),
  };
}
