import { once } from "node:events";
import { constants } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import type { ExitStatus, OutputStream, SandboxProcess } from "@agent-sandbox/sdk";
import { isSandboxError } from "@agent-sandbox/sdk/errors/sandbox-error";
import type { Context } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import { forwardInput } from "./forward-input.ts";
import { unguarded } from "./harmless.ts";

/** How this terminal and a process are tied together. */
export interface SessionOptions {
  readonly hasTerminal: boolean;
  readonly hasInput: boolean;
}

/** Signals that are handed to the command instead of ending this one. */
const forwarded = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;

/** A sandbox takes a signal within moments; after this long it is taken for one that cannot be reached. */
const signalLimitMs = 3_000;
const signalPauseMs = 200;

/** Signals by which the user wants to get out. */
const leaving: ReadonlySet<string> = new Set(["SIGINT", "SIGTERM", "SIGHUP"]);

/** After that many Ctrl-C the user wants to leave, whatever the command thinks. */
const interruptsMax = 3;

/** Connects a process to this terminal, or to pipes, until it ends; returns its exit code. */
export async function runSession(context: Context, process_: SandboxProcess, options: SessionOptions): Promise<number> {
  const { stdin } = context;
  // With a terminal inside, its escape sequences are passed on to the terminal here; without one they are filtered out.
  const as = options.hasTerminal ? unguarded : (stream: NodeJS.WriteStream): NodeJS.WriteStream => stream;
  using ends = new DisposableStack();
  const leave = (): void => leaveStalled(context, ends);
  forwardSignals(process_, ends, leave);
  if (options.hasTerminal) enterRawMode(context, process_, ends);
  if (options.hasInput || options.hasTerminal)
    ends.use(forwardInput(stdin, process_, { isTerminal: options.hasTerminal, onStalledInterrupt: leave }));
  const [status] = await Promise.all([
    process_.exited,
    forwardOutput(process_.stdout, as(context.stdout)),
    forwardOutput(process_.stderr, as(context.stderr)),
  ]);
  return exitCodeOf(status, context);
}

/** The size of this terminal. */
export function terminalSize({ stdout }: Context): { cols: number; rows: number } {
  return { cols: stdout.columns || 80, rows: stdout.rows || 24 };
}

function exitCodeOf({ exitCode, timedOut, reason }: ExitStatus, { stderr }: Context): number {
  if (timedOut) stderr.write("error: the command ran longer than --command-timeout and was killed\n");
  if (reason !== undefined) stderr.write(`error: the command was killed: ${reason}\n`);
  return exitCode;
}

/** Ends this program where the sandbox does not take an interrupt; what runs in the sandbox goes on. */
function leaveStalled({ stderr }: Context, ends: DisposableStack): void {
  ends.dispose();
  stderr.write("error: the sandbox does not answer, so the command could not be interrupted\n");
  process.exit(exitCodes.interrupted);
}

function forwardSignals(process_: SandboxProcess, ends: DisposableStack, leave: () => void): void {
  let interrupts = 0;
  for (const name of forwarded) {
    const before = process.listeners(name);
    process.removeAllListeners(name);
    const onSignal = (): void => {
      if (name === "SIGINT") interrupts += 1;
      if (interrupts >= interruptsMax) process.exit(128 + constants.signals.SIGINT);
      void isDelivered(process_, name).then((delivered) => {
        if (!delivered && leaving.has(name) && !ends.disposed) leave();
      });
    };
    process.on(name, onSignal);
    ends.defer(() => {
      process.off(name, onSignal);
      for (const listener of before) process.on(name, listener as () => void);
    });
  }
}

/** Whether the sandbox took a signal, or has no use for it; a router that starts again is waited for. */
async function isDelivered(process_: SandboxProcess, name: string): Promise<boolean> {
  const signal = AbortSignal.timeout(signalLimitMs);
  while (!signal.aborted) {
    try {
      await process_.signal(name, { scope: "group", signal });
      return true;
    } catch (error) {
      if (!signal.aborted && !(isSandboxError(error) && error.isRetryable)) return true;
    }
    await sleep(signalPauseMs);
  }
  return false;
}

function enterRawMode(context: Context, process_: SandboxProcess, ends: DisposableStack): void {
  const { stdin, stdout } = context;
  if (stdin.isTTY) {
    stdin.setRawMode(true);
    ends.defer(() => stdin.setRawMode(false));
  }
  const onResize = (): void => void process_.resize(terminalSize(context)).catch(() => undefined);
  stdout.on("resize", onResize);
  ends.defer(() => stdout.off("resize", onResize));
}

async function forwardOutput(from: OutputStream, to: NodeJS.WriteStream): Promise<void> {
  for await (const chunk of from) {
    if (!to.write(chunk)) await once(to, "drain");
  }
}

/** The exit code for a start that failed. */
export function startFailureCode(code: string): number {
  if (code === "not-found") return exitCodes.commandNotFound;
  return code === "permission-denied" ? exitCodes.notExecutable : exitCodes.sandboxFailed;
}
