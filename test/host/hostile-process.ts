import { type ChildProcess, execFileSync, fork } from "node:child_process";
import fs from "node:fs";
import http from "node:http";

/** What a process of another user is asked to do. */
type Order =
  | { readonly do: "call"; readonly socket: string; readonly verb: string; readonly body: string }
  | { readonly do: "file"; readonly action: keyof typeof fs; readonly args: readonly string[] }
  | { readonly do: "fifo"; readonly path: string }
  | { readonly do: "swap"; readonly path: string; readonly others: readonly string[] }
  | { readonly do: "rest" };

/** How it went: `ok`, the helper's code, or the system's. */
export interface Outcome {
  readonly code: string;
  readonly message: string;
}

/** A process that has given up root for a user, and runs the operations that the test sends. */
export class HostileProcess implements AsyncDisposable {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async start(user: { readonly uid: number; readonly gid: number }): Promise<HostileProcess> {
    const child = fork(import.meta.filename, [String(user.uid), String(user.gid)], { stdio: "inherit" });
    await new Promise((resolve) => child.once("message", resolve));
    return new HostileProcess(child);
  }

  /** Asks the helper for a verb; a body that is no text is written as JSON. */
  call(socket: string, verb: string, body: unknown): Promise<Outcome> {
    return this.#order({ do: "call", socket, verb, body: typeof body === "string" ? body : JSON.stringify(body) });
  }

  /** Calls a function of `node:fs`. */
  file(action: keyof typeof fs, ...args: readonly string[]): Promise<Outcome> {
    return this.#order({ do: "file", action, args });
  }

  fifo(path: string): Promise<Outcome> {
    return this.#order({ do: "fifo", path });
  }

  /** Gives a name to one thing after the other, until `rest`. */
  swap(path: string, others: readonly string[]): Promise<Outcome> {
    return this.#order({ do: "swap", path, others });
  }

  rest(): Promise<Outcome> {
    return this.#order({ do: "rest" });
  }

  #order(order: Order): Promise<Outcome> {
    return new Promise((resolve) => {
      this.#child.once("message", (outcome) => resolve(outcome as Outcome));
      this.#child.send(order);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const gone = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill("SIGKILL");
    await gone;
  }
}

const ok: Outcome = { code: "ok", message: "" };

function failed(error: unknown): Outcome {
  const { code = "unknown", message } = error as NodeJS.ErrnoException;
  return { code, message };
}

function tried(run: () => unknown): Outcome {
  try {
    run();
    return ok;
  } catch (error) {
    return failed(error);
  }
}

function ask({ socket, verb, body }: Extract<Order, { do: "call" }>): Promise<Outcome> {
  return new Promise((resolve) => {
    const upgrade = verb === "exec" ? { connection: "Upgrade", upgrade: "agent-sandbox-exec" } : {};
    const options = { socketPath: socket, path: `/v1/${verb}`, method: "POST", headers: upgrade };
    const request = http.request(options, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", () => {
        if (response.statusCode === 200) resolve(ok);
        else resolve(JSON.parse(Buffer.concat(chunks).toString()) as Outcome);
      });
    });
    request.on("upgrade", (_response, stream) => {
      stream.destroy();
      resolve(ok);
    });
    request.on("error", (error) => resolve(failed(error)));
    request.end(body);
  });
}

let isSwapping = false;

/** Swaps in bursts, with a look at the orders between two of them. */
function swap(path: string, others: readonly string[]): void {
  for (let time = 0; time < 200; time += 1) {
    const other = others[time % others.length] ?? "";
    tried(() => fs.renameSync(other, path));
    tried(() => fs.renameSync(path, other));
  }
  if (isSwapping) setImmediate(() => swap(path, others));
}

async function obey(order: Order): Promise<Outcome> {
  switch (order.do) {
    case "call":
      return ask(order);
    case "file":
      return tried(() => (fs[order.action] as (...args: readonly string[]) => unknown)(...order.args));
    case "fifo":
      return tried(() => execFileSync("mkfifo", ["-m", "666", order.path]));
    case "swap":
      isSwapping = true;
      setImmediate(() => swap(order.path, order.others));
      return ok;
    case "rest":
      isSwapping = false;
      return ok;
  }
}

if (process.argv[1] === import.meta.filename && process.send !== undefined) {
  const [uid, gid] = process.argv.slice(2).map(Number);
  process.setgroups?.([]);
  process.setgid?.(gid ?? -1);
  process.setuid?.(uid ?? -1);
  process.on("message", (order: Order) => void obey(order).then((outcome) => process.send?.(outcome)));
  process.send("ready");
}
