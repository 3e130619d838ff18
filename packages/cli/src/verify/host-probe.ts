import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { CliError } from "../cli-error.ts";
import type { Attempt, Outcome } from "./attempt.ts";

/** The input of a holder: the key of its shared memory, the files it makes and the addresses it listens on. */
export interface Holding {
  readonly key: number;
  readonly files: readonly string[];
  readonly listen: readonly string[];
}

/** A `sandbox-probe hold` on this machine: marks to find, listeners to reach. */
export interface Holder extends AsyncDisposable {
  /** Texts of the datagrams that came. */
  readonly noted: () => readonly string[];
}

/** Starts a holder; `prefix` is the command line that puts it elsewhere, such as into a network namespace. */
export async function startHolder(
  program: string,
  name: string,
  { holding, prefix = [] }: { readonly holding: Holding; readonly prefix?: readonly string[] },
): Promise<Holder> {
  const words = [...prefix, program, "hold", name];
  const child = spawn(words[0] ?? program, words.slice(1), { stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.end(JSON.stringify(holding));
  const texts: string[] = [];
  const lines = createInterface({ input: child.stdout });
  await opened(child, lines);
  lines.on("line", (line) => texts.push((JSON.parse(line) as { text: string }).text));
  return {
    noted: () => texts,
    [Symbol.asyncDispose]: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      await ended;
    },
  };
}

/** The first line says that everything is there. */
async function opened(child: ChildProcess, lines: ReturnType<typeof createInterface>): Promise<void> {
  let complaint = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    complaint = `${complaint}${chunk.toString("utf8")}`.slice(0, 2000);
  });
  const first = once(lines, "line").then(() => "line");
  const end = once(child, "exit").then(() => "exit");
  if ((await Promise.race([first, end])) === "exit")
    throw new CliError(`a listener did not start: ${complaint.trim()}`);
}

/** Long enough for every attempt's own bound. */
const hostTryMs = 60_000;

/** Makes attempts on this machine, in a mount namespace of their own, so that nothing of them can stay. */
export function tryOnHost(program: string, attempts: readonly Attempt[], signal: AbortSignal): Promise<Outcome[]> {
  return new Promise((resolve, reject) => {
    const child = execFile(
      "unshare",
      ["--mount", program, "try"],
      { timeout: hostTryMs, signal },
      (error, stdout, stderr) => {
        if (error === null) resolve(JSON.parse(stdout) as Outcome[]);
        else
          reject(
            signal.aborted ? signal.reason : new CliError(`sandbox-probe failed here: ${stderr}`, { cause: error }),
          );
      },
    );
    child.stdin?.end(JSON.stringify(attempts));
  });
}
