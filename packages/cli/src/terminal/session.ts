import { once } from "node:events";
import { constants } from "node:os";
import type { ExitStatus, OutputStream, SandboxProcess } from "@agent-sandbox/sdk";
import type { Context } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import { unguarded } from "./harmless.ts";

/** How this terminal and a process are tied together. */
export interface SessionOptions {
  readonly hasTerminal: boolean;
  readonly hasInput: boolean;
}

/** Signals that are handed to the command instead of ending this one. */
const forwarded = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;

/** After that many Ctrl-C the user wants to leave, whatever the command thinks. */
const interruptsMax = 3;

/** Connects a process to this terminal, or to pipes, until it ends; returns its exit code. */
export async function runSession(context: Context, process_: SandboxProcess, options: SessionOptions): Promise<number> {
  const { stdin } = context;
  // With a terminal inside, its escape sequences are passed on to the terminal here; without one they are filtered out.
  const as = options.hasTerminal ? unguarded : (stream: NodeJS.WriteStream): NodeJS.WriteStream => stream;
  using ends = new DisposableStack();
  forwardSignals(process_, ends);
  if (options.hasTerminal) enterRawMode(context, process_, ends);
  if (options.hasInput || options.hasTerminal) forwardInput(stdin, process_, ends, options.hasTerminal);
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

function exitCodeOf({ exitCode, timedOut }: ExitStatus, { stderr }: Context): number {
  if (timedOut) stderr.write("error: the command ran longer than --command-timeout and was killed\n");
  return exitCode;
}

function forwardSignals(process_: SandboxProcess, ends: DisposableStack): void {
  let interrupts = 0;
  for (const name of forwarded) {
    const before = process.listeners(name);
    process.removeAllListeners(name);
    const onSignal = (): void => {
      if (name === "SIGINT") interrupts += 1;
      if (interrupts >= interruptsMax) process.exit(128 + constants.signals.SIGINT);
      // A process that has just ended has no use for it.
      void process_.signal(name, { scope: "group" }).catch(() => undefined);
    };
    process.on(name, onSignal);
    ends.defer(() => {
      process.off(name, onSignal);
      for (const listener of before) process.on(name, listener as () => void);
    });
  }
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

function forwardInput(
  stdin: NodeJS.ReadStream,
  process_: SandboxProcess,
  ends: DisposableStack,
  isTerminal: boolean,
): void {
  const onChunk = (chunk: Buffer): void => {
    stdin.pause();
    process_.stdin.write(chunk).then(
      () => stdin.resume(),
      // The process closed its input or is gone; what it does not want is dropped.
      () => undefined,
    );
  };
  const onEnd = (): void => void process_.stdin.end().catch(() => undefined);
  stdin.on("data", onChunk);
  if (!isTerminal || !stdin.isTTY) stdin.once("end", onEnd);
  ends.defer(() => {
    stdin.off("data", onChunk);
    stdin.off("end", onEnd);
    stdin.pause();
  });
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
