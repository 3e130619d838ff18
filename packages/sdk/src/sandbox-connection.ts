import { SandboxFiles } from "./files/sandbox-files.ts";
import { ConnectClient } from "./plane/connect-client.ts";
import { type DataPlane, daemonPort, type PlaneRequest, readText } from "./plane/data-plane.ts";
import { Processes, type ProcessInfo } from "./process/processes.ts";
import { randomKey } from "./process/random-key.ts";
import type { Command, PtyOptions, RunOptions, SpawnOptions } from "./process/run-options.ts";
import type { RunResult } from "./process/run-result.ts";
import type { SandboxProcess } from "./process/sandbox-process.ts";

/** What a connection to a sandbox is made of. */
export interface ConnectionParts {
  readonly namespace: string;
  readonly name: string;
  readonly plane: DataPlane;
  /** Makes idempotency keys; default: random 16 hexadecimal digits. */
  readonly newKey?: () => string;
}

/** A request to a program that listens in the sandbox. */
export interface PortRequest {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: PlaneRequest["body"];
  readonly signal?: AbortSignal;
}

/** Figures of the daemon in the sandbox, by name. */
export type SandboxMetrics = Readonly<Record<string, number>>;

/** The data plane of one sandbox: processes, files, ports. Runs in Node and in a browser. */
export class SandboxConnection {
  readonly namespace: string;
  readonly name: string;
  readonly files: SandboxFiles;
  readonly #plane: DataPlane;
  readonly #processes: Processes;

  constructor({ namespace, name, plane, newKey = randomKey }: ConnectionParts) {
    this.namespace = namespace;
    this.name = name;
    this.#plane = plane;
    const client = new ConnectClient(plane);
    this.files = new SandboxFiles(plane, client);
    this.#processes = new Processes(client, newKey);
  }

  /** Runs a command to its end: text in the sandbox's shell, a list as argv. A non-zero exit code is a result, unless `check`. */
  run(command: Command, options?: RunOptions): Promise<RunResult> {
    return this.#processes.run(command, options);
  }

  /** Starts a process; resolves when it runs. */
  spawn(command: Command, options?: SpawnOptions): Promise<SandboxProcess> {
    return this.#processes.spawn(command, options);
  }

  /** Starts a process with a terminal; default a login shell. */
  pty(command?: Command, options?: PtyOptions): Promise<SandboxProcess> {
    return this.#processes.pty(command, options);
  }

  /** Follows a process that was started before, here or elsewhere. */
  attach(
    id: string,
    options?: { readonly fromOffset?: number; readonly signal?: AbortSignal },
  ): Promise<SandboxProcess> {
    return this.#processes.attach(id, options);
  }

  /** Processes that run or are still remembered, oldest first. */
  processes(options?: { readonly runningOnly?: boolean; readonly signal?: AbortSignal }): Promise<ProcessInfo[]> {
    return this.#processes.list(options);
  }

  /** Sends an HTTP request to a port inside the sandbox; a sleeping sandbox is woken by it. */
  async fetch(
    port: number,
    path = "/",
    { method = "GET", headers, body, signal }: PortRequest = {},
  ): Promise<Response> {
    const response = await this.#plane.request({
      method,
      port,
      path: path.startsWith("/") ? path : `/${path}`,
      signal,
      ...(headers !== undefined && { headers }),
      ...(body !== undefined && { body }),
    });
    const { status } = response;
    const isEmpty = method === "HEAD" || status === 204 || status === 205 || status === 304;
    return new Response(isEmpty ? null : streamOf(response.body), { status, headers: { ...response.headers } });
  }

  /** Figures of the daemon in the sandbox. Asking does not keep a sandbox awake. */
  async metrics(options: { readonly signal?: AbortSignal } = {}): Promise<SandboxMetrics> {
    const request = { method: "GET", port: daemonPort, path: "/v1/metrics", signal: options.signal };
    const text = await readText((await this.#plane.request(request)).body);
    const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
    return Object.fromEntries(lines.map((line) => splitLast(line)));
  }

  /** Ends the connections of this handle; the sandbox goes on. */
  close(): Promise<void> {
    return this.#plane.close();
  }
}

function splitLast(line: string): [string, number] {
  const space = line.lastIndexOf(" ");
  return [line.slice(0, space), Number(line.slice(space + 1))];
}

function streamOf(body: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const chunks = body[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await chunks.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await chunks.return?.();
    },
  });
}
