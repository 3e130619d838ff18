import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";

/** A daemon of the test cluster. */
export interface Daemon {
  readonly name: string;
  readonly pid: number;
  readonly logFile: string;
  /** Undefined while it runs. */
  exitCode(): number | null | undefined;
  /** Ends it and resolves when it is gone. */
  stop(): Promise<void>;
}

/** How long a daemon may take to end by itself before it is killed; nothing it holds outlives the test. */
const stopGraceMs = 5_000;

/** Starts a daemon whose output goes to a file. It dies with this process, also when that is killed. */
export function startDaemon(
  name: string,
  file: string,
  args: readonly string[],
  logFile: string,
  env: Readonly<Record<string, string>> = {},
): Daemon {
  const log = openSync(logFile, "w", 0o600);
  const child = spawn("setpriv", ["--pdeathsig", "KILL", file, ...args], {
    stdio: ["ignore", log, log],
    env: { ...process.env, ...env },
  });
  closeSync(log);
  if (child.pid === undefined) throw new Error(`${name} cannot be started: ${file}`);
  let exitCode: number | null | undefined;
  const gone = new Promise<void>((resolve) => {
    child.once("exit", (code) => {
      exitCode = code;
      resolve();
    });
  });
  return { name, pid: child.pid, logFile, exitCode: () => exitCode, stop: () => stop(child, gone) };
}

async function stop(child: ChildProcess, gone: Promise<void>): Promise<void> {
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), stopGraceMs);
  await gone;
  clearTimeout(timer);
}

/** The last lines of a daemon's log, for the error that says why it did not come up. */
export function logTail({ logFile }: Daemon, lines = 15): string {
  return readFileSync(logFile, "utf8").trimEnd().split("\n").slice(-lines).join("\n");
}
