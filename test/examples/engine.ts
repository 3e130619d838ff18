import { spawn } from "node:child_process";
import { mkdtemp, readdir } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { readDevDir, readSetup, rootDir } from "../../scripts/checkout.ts";

/** How a command ended. */
export interface Outcome {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Where and how long a command runs. */
export interface RunOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly timeoutMs: number;
}

/** A real engine of its own data directory; ports are free ones, so that it meets no other engine. */
export class ExampleEngine implements AsyncDisposable {
  readonly dataDir: string;
  /** What users of this engine have in their environment: the command, three languages, and which engine is meant. */
  readonly env: NodeJS.ProcessEnv;

  private constructor(dataDir: string) {
    this.dataDir = dataDir;
    this.env = userEnvironment(dataDir);
  }

  /** Starts it, with more flags of `up` if any are given; the first start on a machine sets everything up. */
  static async start(...flags: readonly string[]): Promise<ExampleEngine> {
    const engine = new ExampleEngine(await mkdtemp(path.join(os.tmpdir(), "agent-sandbox-examples-")));
    const listen = ["--listen", "--router-listen", "--metrics-listen"].flatMap((flag) => [flag, "127.0.0.1:0"]);
    const started = await engine.run(["agent-sandbox", "up", "--detach", ...listen, ...flags], { timeoutMs: 100_000 });
    if (started.exitCode === 0) return engine;
    await engine[Symbol.asyncDispose]();
    throw new Error(`the engine did not start: ${started.stderr}`);
  }

  /** Runs a program as a user of this engine. */
  run(argv: readonly string[], { env = {}, ...options }: RunOptions): Promise<Outcome> {
    return run(argv, { ...options, env: { ...this.env, ...env } });
  }

  /** Removes everything that it ever made. */
  async [Symbol.asyncDispose](): Promise<void> {
    const ended = await this.run(["agent-sandbox", "down", "--purge"], { timeoutMs: 60_000 });
    if (ended.exitCode !== 0) throw new Error(`the engine is not gone: ${ended.stderr}`);
  }
}

/** The environment of somebody who has installed the command and the three SDKs from this checkout. */
export function userEnvironment(dataDir: string): NodeJS.ProcessEnv {
  const programs = [
    rootDir,
    path.join(rootDir, "node_modules/.bin"),
    path.join(readDevDir("python"), "bin"),
    path.dirname(readSetup().go),
  ];
  return {
    ...process.env,
    PATH: `${programs.join(":")}:${process.env["PATH"] ?? ""}`,
    PYTHONPATH: path.join(rootDir, "sdks/python/src"),
    GOTOOLCHAIN: "local",
    GOFLAGS: "-buildvcs=false",
    NO_COLOR: "1",
    AGENT_SANDBOX_DATA_DIR: dataDir,
  };
}

/** The names of the examples; tools leave hidden folders beside them. */
export async function listExamples(): Promise<string[]> {
  const entries = await readdir(path.join(rootDir, "examples"), { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith(".")).map(({ name }) => name);
}

/** Runs a program to its end; out of time, it is killed with everything it started, and that is its exit code. */
export function run([program = "", ...args]: readonly string[], { cwd, env, timeoutMs }: RunOptions): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    // A group of its own: what a shell or `go run` started must end with it.
    const child = spawn(program, args, {
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
      ...(cwd !== undefined && { cwd }),
      ...(env !== undefined && { env }),
    });
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    const timer = setTimeout(() => {
      stderr += `\nkilled after ${timeoutMs} ms`;
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    }, timeoutMs);
    child.once("error", reject);
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      resolve({ exitCode: code ?? 128 + (os.constants.signals[signal ?? "SIGKILL"] ?? 0), stdout, stderr });
    });
  });
}
