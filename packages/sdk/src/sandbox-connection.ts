import type { OpenPort, SandboxMetrics } from "./control/daemon-status.ts";
import { assertKnownOptions } from "./errors/known-options.ts";
import { SandboxFiles } from "./files/sandbox-files.ts";
import { ConnectClient } from "./plane/connect-client.ts";
import type { DataPlane, PlaneRequest } from "./plane/data-plane.ts";
import type { FindEnd } from "./process/event-stream.ts";
import type { Processes, ProcessInfo } from "./process/processes.ts";
import {
  type Command,
  type PtyOptions,
  processOptionNames,
  type RunOptions,
  type SpawnOptions,
} from "./process/run-options.ts";
import type { RunResult } from "./process/run-result.ts";
import type { SandboxProcess } from "./process/sandbox-process.ts";

/** What a connection to a sandbox is made of. */
export interface ConnectionParts {
  readonly namespace: string;
  readonly name: string;
  readonly plane: DataPlane;
  /** Makes idempotency keys; default: random 16 hexadecimal digits. */
  readonly newKey?: () => string;
  /** Finds the limit that ended the sandbox; default: no limit is ever known. */
  readonly findEnd?: FindEnd;
}

/** A request to a program that listens in the sandbox. */
export interface PortRequest {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: PlaneRequest["body"];
  readonly signal?: AbortSignal;
}

/** The data plane of one sandbox: processes, files, ports. Runs in Node and in a browser. */
export class SandboxConnection {
  readonly namespace: string;
  readonly name: string;
  readonly files: SandboxFiles;
  readonly #plane: DataPlane;
  readonly #client: ConnectClient;
  readonly #newKey: (() => string) | undefined;
  readonly #findEnd: FindEnd | undefined;
  #loaded: Promise<Processes> | undefined;

  constructor({ namespace, name, plane, newKey, findEnd }: ConnectionParts) {
    this.namespace = namespace;
    this.name = name;
    this.#plane = plane;
    this.#client = new ConnectClient(plane);
    this.#newKey = newKey;
    this.#findEnd = findEnd;
    this.files = new SandboxFiles(plane, this.#client);
  }

  /** Loaded by the first call: half of the SDK is about processes, and an import must not cost what only calls need. */
  #processes(): Promise<Processes> {
    this.#loaded ??= import("./process/processes.ts").then(
      ({ Processes }) => new Processes(this.#client, { newKey: this.#newKey, findEnd: this.#findEnd }),
    );
    return this.#loaded;
  }

  /** Runs a command to its end: text in the sandbox's shell, a list as argv. A non-zero exit code is a result, unless `check`. */
  async run(command: Command, options: RunOptions = {}): Promise<RunResult> {
    assertKnownOptions("run", options, processOptionNames.run);
    return (await this.#processes()).run(command, options);
  }

  /** Starts a process; resolves when it runs. */
  async spawn(command: Command, options: SpawnOptions = {}): Promise<SandboxProcess> {
    assertKnownOptions("spawn", options, processOptionNames.spawn);
    return (await this.#processes()).spawn(command, options);
  }

  /** Starts a process with a terminal; default a login shell. */
  async pty(command?: Command, options: PtyOptions = {}): Promise<SandboxProcess> {
    assertKnownOptions("pty", options, processOptionNames.pty);
    return (await this.#processes()).pty(command, options);
  }

  /** Follows a process that was started before, here or elsewhere. */
  async attach(
    id: string,
    options?: { readonly fromOffset?: number; readonly signal?: AbortSignal },
  ): Promise<SandboxProcess> {
    return (await this.#processes()).attach(id, options);
  }

  /** Processes that run or are still remembered, oldest first. */
  async processes(options?: { readonly runningOnly?: boolean; readonly signal?: AbortSignal }): Promise<ProcessInfo[]> {
    return (await this.#processes()).list(options);
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

  /** What listens in the sandbox, for `fetch` and `url`; a sleeping sandbox is woken by it. */
  async ports(options: { readonly signal?: AbortSignal } = {}): Promise<OpenPort[]> {
    const { readPorts } = await import("./control/daemon-status.ts");
    return readPorts(this.#plane, options.signal);
  }

  /** Figures of the daemon in the sandbox; a sleeping sandbox is woken by it. */
  async metrics(options: { readonly signal?: AbortSignal } = {}): Promise<SandboxMetrics> {
    const { readMetrics } = await import("./control/daemon-status.ts");
    return readMetrics(this.#plane, options.signal);
  }

  /** Ends the connections of this handle; the sandbox goes on. */
  close(): Promise<void> {
    return this.#plane.close();
  }
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
