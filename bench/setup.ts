// Set-up as a newcomer meets it, in a fresh clone with an empty cache and no Go on the PATH: killed half way, then started
// twice at once, then timed with nothing to do, then without a network. Takes minutes; needs the package registries.
//
//   node bench/setup.ts
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { rootDir } from "../scripts/checkout.ts";

/** The call with nothing to do, all in all; the target of the project. */
const idleTargetMs = 300;
const idleRounds = 9;

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly seconds: number;
}

/** A program under way whose standard error can be waited for. */
class Started {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  #stderr = "";

  constructor(argv: readonly [string, ...string[]], env: NodeJS.ProcessEnv, cwd: string) {
    const startMs = performance.now();
    let stdout = "";
    this.child = spawn(argv[0], argv.slice(1), { env, cwd, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    this.child.stdout?.on("data", (chunk: Buffer) => {
      stdout += chunk.toString("utf8");
    });
    this.child.stderr?.on("data", (chunk: Buffer) => {
      this.#stderr += chunk.toString("utf8");
    });
    this.ended = once(this.child, "close").then(([code]) => ({
      code: code as number | null,
      stdout,
      stderr: this.#stderr,
      seconds: (performance.now() - startMs) / 1000,
    }));
  }

  async untilSaid(text: string): Promise<void> {
    while (!this.#stderr.includes(text)) {
      await Promise.race([once(this.child.stderr as NonNullable<ChildProcess["stderr"]>, "data"), this.#early(text)]);
    }
  }

  async #early(text: string): Promise<never> {
    const { code, stderr } = await this.ended;
    throw new Error(`ended with ${code} before it said '${text}':\n${stderr}`);
  }
}

function check(truth: boolean, promise: string, seen: string): void {
  process.stdout.write(`${truth ? "ok  " : "FAIL"} ${promise}\n${truth ? "" : `${seen}\n`}`);
  if (!truth) process.exitCode = 1;
}

const work = mkdtempSync(path.join(os.tmpdir(), "fresh-clone-"));
const clone = path.join(work, "clone");
const version: [string, ...string[]] = ["./agent-sandbox", "--version"];
// The machine's own Node, which may be older than the pinned one, and no Go.
const plainPath = (process.env["PATH"] ?? "")
  .split(":")
  .filter((dir) => !dir.includes("node_modules") && !existsSync(path.join(dir, "go")));
const env = {
  ...process.env,
  PATH: plainPath.join(":"),
  AGENT_SANDBOX_CACHE: path.join(work, "cache"),
  npm_config_cache: path.join(work, "npm"),
};
try {
  const cloned = spawnSync("git", ["clone", "--quiet", rootDir, clone], { stdio: "inherit" });
  if (cloned.status !== 0) throw new Error("git clone failed");

  const offline = await new Started(["unshare", "--net", ...version], env, clone).ended;
  check(offline.code !== 0, "without a network it fails", offline.stdout);
  check(
    /this step needs the network: npm packages/.test(offline.stderr),
    "and says which step needs one",
    offline.stderr,
  );

  const killed = new Started(version, env, clone);
  await killed.untilSaid("agent-sandbox: runsc");
  process.kill(-(killed.child.pid ?? 0), "SIGKILL");
  const before = await killed.ended;
  check(/Go toolchain: \d/.test(before.stderr), "without Go on the PATH it gets a toolchain", before.stderr);

  const both = [new Started(version, env, clone), new Started(version, env, clone)];
  const ended = await Promise.all(both.map(({ ended }) => ended));
  const said = ended.map(({ stderr }) => stderr).join("");
  process.stdout.write(said);
  check(
    ended.every(({ code, stdout }) => code === 0 && /^\d+\.\d+\.\d+/.test(stdout)),
    "after a kill, two at once both get there",
    said,
  );
  check(!said.includes("npm packages and"), "what was done before the kill is not done again", said);
  check(said.split("waiting for it").length === 2, "one of them waited for the other", said);
  process.stdout.write(`resumed set-up: ${Math.max(...ended.map(({ seconds }) => seconds)).toFixed(1)} s\n`);

  const idle: number[] = [];
  for (let round = 0; round < idleRounds; round++)
    idle.push((await new Started(version, env, clone).ended).seconds * 1000);
  const median = idle.toSorted((a, b) => a - b)[Math.floor(idleRounds / 2)] ?? Number.NaN;
  check(
    median < idleTargetMs,
    `nothing to do: ${median.toFixed(0)} ms in all (at most ${idleTargetMs})`,
    idle.join(" "),
  );
} finally {
  rmSync(work, { recursive: true, force: true });
}
