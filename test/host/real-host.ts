import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
} from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { HostClient } from "../../packages/server/src/node/host/host-client.ts";
import { readDevDir, readSetup } from "../../scripts/checkout.ts";
import { type ContractHost, sweepAll } from "./contract-case.ts";

/** The programs under test; `AGENT_SANDBOX_TEST_*` name builds other than set-up's. */
function programs(): { readonly sandboxHost: string; readonly runsc: string; readonly runc: string } {
  const env = process.env;
  return {
    sandboxHost: env["AGENT_SANDBOX_TEST_SANDBOX_HOST"] ?? readSetup().sandboxHost,
    runsc: env["AGENT_SANDBOX_TEST_RUNSC"] ?? readSetup().runsc,
    runc: env["AGENT_SANDBOX_TEST_RUNC"] ?? path.join(readDevDir("servers"), "usr/sbin/runc"),
  };
}

/** A sandbox-host of its own: its data directory, its mount and network namespaces, which outlive it so that it can be killed and started again. */
export class RealHost implements ContractHost {
  readonly dataDir: string;
  /** The helper's own part of it. */
  readonly hostDir: string;
  /** The node's part, in which lies what a verb may name. */
  readonly nodeDir: string;
  host: HostClient;
  /** The runsc that the next start of the helper installs, in place of the pinned one. */
  runsc: string | undefined;
  readonly #work: string;
  readonly #holder: ChildProcess;
  readonly #flags: readonly string[];
  /** What the helper calls its data directory. */
  readonly #dataDirInside: string;
  #helper: ChildProcess | undefined;

  private constructor(
    work: string,
    holder: ChildProcess,
    { flags, dataDirInside }: { readonly flags: readonly string[]; readonly dataDirInside?: string | undefined },
  ) {
    this.#work = work;
    this.#holder = holder;
    this.#flags = flags;
    this.dataDir = path.join(work, "d");
    this.#dataDirInside = dataDirInside ?? this.dataDir;
    this.hostDir = path.join(this.dataDir, "host");
    this.nodeDir = path.join(this.dataDir, "engine/node");
    this.host = new HostClient({ socketPath: this.#socketPath });
  }

  /**
   * With a `nodeUid`, the helper takes that user for the node, and everything that the user may come to see lies in the work directory. With an
   * `at`, the data directory is at that path inside the namespaces, as in a root of its own.
   */
  static async open({ nodeUid, at }: { readonly nodeUid?: number; readonly at?: string } = {}): Promise<RealHost> {
    const work = mkdtempSync("/tmp/as-host-");
    mkdirSync(path.join(work, "d"));
    if (nodeUid !== undefined) chmodSync(work, 0o711);
    const flags =
      nodeUid === undefined
        ? []
        : [`-node-uid=${nodeUid}`, `-node-gid=${nodeUid}`, `-run-dir=${path.join(work, "run")}`];
    const setUp =
      'mount -t tmpfs tmpfs /run && ip link set lo up && if [ "$2" ]; then mount --bind "$1" "$2"; fi && echo ready && exec sleep infinity';
    const places = [path.join(work, "d"), at ?? ""];
    const namespaces = ["--mount", "--net", "--propagation", "private"];
    const holder = spawn("unshare", [...namespaces, "sh", "-c", setUp, "sh", ...places], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(holder.stdout as NonNullable<typeof holder.stdout>, "data");
    const made = new RealHost(work, holder, { flags, dataDirInside: at });
    for (const dir of ["images", "logs"]) mkdirSync(path.join(made.nodeDir, dir), { recursive: true });
    for (const dir of nodeUid === undefined ? [] : ["", "images", "logs"])
      chownSync(path.join(made.nodeDir, dir), nodeUid ?? 0, nodeUid ?? 0);
    await made.start();
    return made;
  }

  get #socketPath(): string {
    return path.join(this.#work, "host.sock");
  }

  get socketPath(): string {
    return this.#socketPath;
  }

  /** The helper's process. */
  get pid(): number {
    return this.#helper?.pid ?? 0;
  }

  /** The directory that holds everything of this helper, and things beside it that are none of its business. */
  get work(): string {
    return this.#work;
  }

  /** Where the mounts of the namespace are seen from outside. */
  get root(): string {
    return `/proc/${this.#holder.pid}/root`;
  }

  /** The argv that runs a program inside the namespaces. */
  inside(...argv: readonly string[]): readonly [string, readonly string[]] {
    return ["nsenter", ["--target", String(this.#holder.pid), "--mount", "--net", "--", ...argv]];
  }

  /** Runs a program inside the namespaces to its end. */
  runInside(...argv: readonly string[]): { readonly status: number | null; readonly stdout: string } {
    const [program, args] = this.inside(...argv);
    const done = spawnSync(program, args, { encoding: "utf8", timeout: 20_000 });
    return { status: done.status, stdout: done.stdout };
  }

  #spawn(): ChildProcess {
    const { sandboxHost, runsc: pinned, runc } = programs();
    const runsc = this.runsc ?? pinned;
    const flags = [
      "-data-dir",
      this.#dataDirInside,
      "-socket",
      this.#socketPath,
      "-runsc",
      runsc,
      "-runc",
      runc,
      "-allow-runc",
    ];
    const [program, args] = this.inside(sandboxHost, ...flags, ...this.#flags);
    rmSync(this.#socketPath, { force: true });
    const log = openSync(path.join(this.#work, "host.log"), "a");
    return spawn(program, args, { stdio: ["ignore", log, log] });
  }

  /** What a helper says that does not start. */
  async refusal(): Promise<string> {
    const before = this.log().length;
    const helper = this.#spawn();
    const killer = setTimeout(() => helper.kill("SIGKILL"), 10_000);
    await once(helper, "exit");
    clearTimeout(killer);
    return this.log().slice(before);
  }

  async start(): Promise<void> {
    this.#helper = this.#spawn();
    for (let tries = 0; !existsSync(this.#socketPath); tries += 1) {
      if (tries > 500) throw new Error(`sandbox-host did not start: ${this.log()}`);
      await sleep(20);
    }
    await this.host.close();
    this.host = new HostClient({ socketPath: this.#socketPath });
  }

  /** What the helper said. */
  log(): string {
    return readFileSync(path.join(this.#work, "host.log"), "utf8");
  }

  /** Kills the helper without a warning. */
  async kill(): Promise<void> {
    const helper = this.#helper;
    if (helper === undefined) return;
    this.#helper = undefined;
    const gone = once(helper, "exit");
    helper.kill("SIGKILL");
    await gone;
  }

  readonly putBlob = async (name: string, bytes: Uint8Array): Promise<void> => {
    await mkdir(path.dirname(path.join(this.nodeDir, name)), { recursive: true });
    await writeFile(path.join(this.nodeDir, name), bytes);
  };

  readonly readOutput = (name: string): Promise<string> => readFile(path.join(this.nodeDir, name), "utf8");

  /** Takes the rule set away behind the helper's back: what it held back must then pass. */
  async dropRules(): Promise<void> {
    const { instance } = await this.host.info();
    const { status } = this.runInside("nft", "delete", "table", "inet", `as_${instance}`);
    if (status !== 0) throw new Error("the rules were not there");
  }

  /** What runs of a container: the runtime's call, its sentry, its gofer. */
  processesOf(id: string): readonly string[] {
    return processesNaming(path.join(this.hostDir, "containers", id));
  }

  /** Everything of this instance that the machine still has; empty after a sweep of all. */
  leftovers(instance: string): readonly string[] {
    const mounts = this.runInside("cat", "/proc/mounts").stdout.split("\n");
    const links = this.runInside("ip", "-o", "link").stdout.split("\n");
    const tables = this.runInside("nft", "list", "tables").stdout.split("\n");
    const namespaces = this.runInside("sh", "-c", "ls /run/netns 2>/dev/null").stdout.split("\n");
    return [
      ...mounts.filter((line) => line.includes(this.dataDir) || line.includes(`/run/agent-sandbox/${instance}`)),
      ...[...links, ...tables, ...namespaces].filter((line) => line.includes(instance)),
      ...cgroupsOf(instance),
      ...loopsBelow(this.dataDir),
      ...processesNaming(this.dataDir),
    ];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#helper !== undefined) await this.host.sweep(sweepAll);
    await this.host.close();
    await this.kill();
    const gone = once(this.#holder, "exit");
    this.#holder.kill("SIGKILL");
    await gone;
    rmSync(this.#work, { recursive: true, force: true });
  }
}

function cgroupsOf(instance: string): readonly string[] {
  const root = "/sys/fs/cgroup";
  return ["", ...readdirSync(root)]
    .map((mount) => path.join(root, mount, `agent-sandbox-${instance}`))
    .filter((dir) => existsSync(dir));
}

function loopsBelow(dir: string): readonly string[] {
  return readdirSync("/sys/block")
    .map((name) => `/sys/block/${name}/loop/backing_file`)
    .filter((file) => existsSync(file))
    .map((file) => readFileSync(file, "utf8").trim())
    .filter((backing) => backing.startsWith(dir));
}

/** Processes whose command line names a directory, the helper itself apart. */
function processesNaming(dir: string): readonly string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
      } catch {
        return "";
      }
    })
    .filter((line) => line.includes(dir) && !line.includes("host.sock"));
}
