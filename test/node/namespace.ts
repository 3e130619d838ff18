import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import net from "node:net";
import path from "node:path";

/** What a program that ran to its end left. */
export interface Finished {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Mount and network namespaces of a suite's own, with nothing in them but loopback: no packet of a test leaves the machine. */
export class TestNamespace implements AsyncDisposable {
  readonly #holder: ChildProcess;
  /** The first process inside. */
  readonly pid: number;
  readonly #flags: readonly string[];
  readonly #doors: { readonly process: ChildProcess; readonly server: net.Server }[] = [];

  private constructor(holder: ChildProcess, pid: number, flags: readonly string[]) {
    this.#holder = holder;
    this.pid = pid;
    this.#flags = flags;
  }

  static async open(): Promise<TestNamespace> {
    const holder = await startHolder("unshare", [...unshared, ...holding("sleep infinity")]);
    return new TestNamespace(holder, holder.pid ?? 0, []);
  }

  /**
   * The same with a process namespace: what runs inside ends with it, also what has left its parent, and all of it with this process. `init`
   * becomes the first process and must take the exits of orphans.
   */
  static async openWithProcesses(init: string): Promise<TestNamespace> {
    const own = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    const argv = ["--pdeathsig", "KILL", "unshare", ...own, ...unshared, ...holding(init)];
    const holder = await startHolder("setpriv", argv);
    const children = readFileSync(`/proc/${holder.pid}/task/${holder.pid}/children`, "utf8");
    return new TestNamespace(holder, Number(children.trim()), ["--pid"]);
  }

  /** The argv that runs a program inside. */
  inside(...argv: readonly string[]): readonly [string, readonly string[]] {
    const directory = `--wd=${process.cwd()}`;
    return ["nsenter", ["--target", String(this.pid), "--mount", "--net", ...this.#flags, directory, "--", ...argv]];
  }

  /** Runs a program inside to its end. */
  run(argv: readonly string[], options: { readonly input?: string; readonly timeoutMs?: number } = {}): Finished {
    const [program, args] = this.inside(...argv);
    const { status, stdout, stderr } = spawnSync(program, args, {
      encoding: "utf8",
      timeout: options.timeoutMs ?? 60_000,
      ...(options.input !== undefined && { input: options.input }),
    });
    return { status, stdout, stderr };
  }

  /** Runs a program that must succeed; resolves to its output. */
  must(...argv: readonly string[]): string {
    const { status, stdout, stderr } = this.run(argv);
    if (status !== 0) throw new Error(`${argv.join(" ")} ended with ${status}: ${stderr}${stdout}`);
    return stdout;
  }

  /** A loopback port out here that leads to a port inside. */
  async openDoor(port: number, socketPath: string, host = "127.0.0.1"): Promise<number> {
    const script = path.join(import.meta.dirname, "door.ts");
    const [program, args] = this.inside(process.execPath, script, socketPath, String(port), host);
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
    await once(child.stdout as NonNullable<typeof child.stdout>, "data");
    const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (outer) => {
      const inner = net.connect({ path: socketPath, allowHalfOpen: true });
      outer.pipe(inner).pipe(outer);
      outer.once("error", () => inner.destroy());
      inner.once("error", () => outer.destroy());
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    this.#doors.push({ process: child, server });
    return (server.address() as net.AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { process: child, server } of this.#doors) {
      server.close();
      child.kill("SIGKILL");
    }
    const gone = once(this.#holder, "exit");
    // Where there is a process namespace, its first process ends after all others, and the holder after that.
    process.kill(this.pid, "SIGTERM");
    await gone;
  }
}

const unshared = ["--mount", "--net", "--propagation", "private"];

/** What the first process does before it becomes the program that holds the namespaces. */
function holding(program: string): string[] {
  return ["sh", "-c", `mount -t tmpfs tmpfs /run && ip link set lo up && echo ready && exec ${program}`];
}

async function startHolder(file: string, args: readonly string[]): Promise<ChildProcess> {
  const holder = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
  await once(holder.stdout, "data");
  return holder;
}
