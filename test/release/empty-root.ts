import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { rootDir } from "../../scripts/checkout.ts";
import type { Finished } from "../node/namespace.ts";

/** The tar archive of a root with Debian's essential packages alone, which set-up made. */
function emptyRootArchive(): string {
  return readFileSync(path.join(rootDir, "node_modules/.agent-sandbox/empty-root"), "utf8");
}

// A machine has these; what a container's root lacks must not make the difference. The first process takes the exits of orphans.
const begin = `
mount --bind "$1" "$1" && cd "$1"
mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev && mount -t tmpfs tmpfs run
ip link set lo up
dir=$1; shift
while [ $# -gt 0 ]; do mkdir -p "$dir$2"; mount --bind "$1" "$dir$2"; mount -o "remount,bind,$3" "$dir$2"; shift 3; done
mkdir -p old && pivot_root . old && umount -l old
echo ready
while :; do sleep 3600; done`;

/** A directory of this machine that a root has at a path of its own; read-only unless said otherwise. */
export interface Lent {
  readonly from: string;
  readonly to: string;
  readonly isWritable?: boolean;
}

/**
 * A root of its own with nothing but Debian's essential packages and apt, entered with namespaces for mounts, processes and the network: all that
 * runs inside ends with it.
 */
export class EmptyRoot implements AsyncDisposable {
  readonly #holder: ChildProcess;
  readonly #pid: number;
  /** The root as a directory out here. */
  readonly dir: string;

  private constructor(holder: ChildProcess, dir: string) {
    this.#holder = holder;
    this.dir = dir;
    this.#pid = Number(readFileSync(`/proc/${holder.pid}/task/${holder.pid}/children`, "utf8").trim());
  }

  static async open(lent: readonly Lent[] = []): Promise<EmptyRoot> {
    const missing = lent.map(({ from }) => from).filter((from) => !existsSync(from));
    // npm installs no optional package that it cannot get, and says nothing of it.
    if (missing.length > 0) throw new Error(`set-up has not brought ${missing.join(", ")}`);
    const dir = mkdtempSync("/var/tmp/as-release-root-");
    chmodSync(dir, 0o755);
    await promisify(execFile)("tar", ["-C", dir, "--exclude=./dev/*", "-xf", emptyRootArchive()]);
    const own = ["--pid", "--fork", "--kill-child", "--mount", "--net", "--propagation", "private"];
    const argv = ["--pdeathsig", "KILL", "unshare", ...own, "sh", "-euc", begin, "sh", dir];
    for (const { from, to, isWritable = false } of lent) argv.push(from, to, isWritable ? "rw" : "ro");
    const holder = spawn("setpriv", argv, { stdio: ["ignore", "pipe", "inherit"] });
    await once(holder.stdout, "data");
    return new EmptyRoot(holder, dir);
  }

  /** Unpacks a release in root's home, as its user would: a directory that root alone can read. */
  unpack(tarball: string): void {
    chmodSync(path.join(this.dir, "root"), 0o700);
    must("tar", ["-C", path.join(this.dir, "root"), "-xzf", tarball]);
  }

  /** Runs a program inside to its end, with the environment of a login and nothing of ours. */
  run(...argv: readonly string[]): Finished {
    const inside = ["--target", String(this.#pid), "--mount", "--net", "--pid", "--"];
    const env = [
      "/usr/bin/env",
      "-i",
      "HOME=/root",
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ];
    const { status, stdout, stderr } = spawnSync("nsenter", [...inside, ...env, ...argv], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
      timeout: 110_000,
    });
    return { status, stdout, stderr };
  }

  /** Starts a program out here that has the root's network, such as a server for what runs inside; the caller ends it. */
  startBeside(program: string, args: readonly string[], log?: number): ChildProcess {
    const network = ["--target", String(this.#pid), "--net", "--"];
    return spawn("nsenter", [...network, "setpriv", "--pdeathsig", "KILL", program, ...args], {
      stdio: ["ignore", log ?? "ignore", log ?? "ignore"],
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const gone = once(this.#holder, "exit");
    process.kill(this.#pid, "SIGKILL");
    await gone;
    rmSync(this.dir, { recursive: true });
  }
}

/** Runs a program out here that must succeed. */
export function must(program: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): string {
  const child = spawnSync(program, args, { encoding: "utf8", env: { ...process.env, ...env }, timeout: 120_000 });
  if (child.status !== 0) throw new Error(`${program} ${args.join(" ")} ended with ${child.status}: ${child.stderr}`);
  return child.stdout;
}
