import { type ChildProcess, spawn } from "node:child_process";
import { chmod, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

const rootDir = path.resolve(import.meta.dirname, "../..");

/** What a command left. */
export interface CommandOutcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A data directory of its own and the command with the flag that uses it. */
export class CliWorld {
  readonly dataDir: string;

  private constructor(dataDir: string) {
    this.dataDir = dataDir;
  }

  static async create(): Promise<CliWorld> {
    const dataDir = await mkdtemp(path.join(tmpdir(), "cli-scenario-"));
    // The engine's unprivileged processes must reach what is inside.
    await chmod(dataDir, 0o755);
    return new CliWorld(dataDir);
  }

  /** Starts `./agent-sandbox` as a user would, without anything of this process's own engine settings. */
  start(args: readonly string[], env: Readonly<Record<string, string>> = {}): ChildProcess {
    const { AGENT_SANDBOX_KUBECONFIG: _k, AGENT_SANDBOX_CONTEXT: _c, ...inherited } = process.env;
    return spawn(path.join(rootDir, "agent-sandbox"), args, {
      cwd: rootDir,
      env: { ...inherited, AGENT_SANDBOX_DATA_DIR: this.dataDir, ...env },
      stdio: ["pipe", "pipe", "pipe"],
    });
  }

  /** Runs a command to its end. */
  async run(args: readonly string[], input = ""): Promise<CommandOutcome> {
    const child = this.start(args);
    const [out, err]: [Buffer[], Buffer[]] = [[], []];
    child.stdout?.on("data", (chunk: Buffer) => out.push(chunk));
    child.stderr?.on("data", (chunk: Buffer) => err.push(chunk));
    // A command that ends without reading its input is no failure of the test.
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(input);
    const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
    return { code, stdout: Buffer.concat(out).toString("utf8"), stderr: Buffer.concat(err).toString("utf8") };
  }

  /** What a command that ends by itself shows on a terminal; both of its streams are that. */
  async onTerminal(args: readonly string[]): Promise<string> {
    const quoted = [path.join(rootDir, "agent-sandbox"), ...args].map((word) => `'${word.replaceAll("'", "'\\''")}'`);
    const child = spawn("script", ["-qec", quoted.join(" "), "/dev/null"], {
      cwd: rootDir,
      env: { ...process.env, AGENT_SANDBOX_DATA_DIR: this.dataDir, NO_COLOR: "1" },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let shown = "";
    for await (const chunk of child.stdout) shown += String(chunk);
    return shown;
  }

  /** Removes everything the engine made. */
  async purge(): Promise<void> {
    const { code, stderr } = await this.run(["down", "--purge"]);
    if (code !== 0) throw new Error(`down --purge failed: ${stderr}`);
  }
}
