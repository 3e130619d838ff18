import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
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
  readonly #doors: { readonly process: ChildProcess; readonly server: net.Server }[] = [];

  private constructor(holder: ChildProcess) {
    this.#holder = holder;
  }

  static async open(): Promise<TestNamespace> {
    const setUp = "mount -t tmpfs tmpfs /run && ip link set lo up && echo ready && exec sleep infinity";
    const holder = spawn("unshare", ["--mount", "--net", "--propagation", "private", "sh", "-c", setUp], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(holder.stdout as NonNullable<typeof holder.stdout>, "data");
    return new TestNamespace(holder);
  }

  get pid(): number {
    return this.#holder.pid ?? 0;
  }

  /** The argv that runs a program inside. */
  inside(...argv: readonly string[]): readonly [string, readonly string[]] {
    const directory = `--wd=${process.cwd()}`;
    return ["nsenter", ["--target", String(this.pid), "--mount", "--net", directory, "--", ...argv]];
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
    this.#holder.kill("SIGKILL");
    await gone;
  }
}
