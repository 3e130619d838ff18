import type { Transport } from "@agent-sandbox/kube/transport";
import { SandboxError } from "../errors/sandbox-error.ts";
import { type DataPlane, daemonPort, type PlaneRequest, type PlaneResponse } from "../plane/data-plane.ts";
import { encodeEnvelope, endStreamFlag } from "../plane/envelope.ts";
import { decodeMessage } from "../plane/protobuf.ts";
import { processService, startType, type WireEvent, type WireSpec } from "../process/wire.ts";
import { untilAborted } from "../timing/until-aborted.ts";
import { ExecProcess } from "./exec-process.ts";

/** Where commands go. */
export interface ExecPlaneOptions {
  readonly transport: Transport;
  readonly namespace: string;
  readonly findPod: (signal?: AbortSignal) => Promise<{ readonly name: string }>;
  readonly newId: () => string;
}

interface StartMessage {
  readonly spec: WireSpec;
  readonly idempotencyKey: string;
  readonly service?: string;
}

/**
 * Stands in for sandboxd where a sandbox has none: commands, their input, signals and terminals go through `pods/exec`, in the
 * same messages. What exec cannot do (ports, reattachment, other users, files) is answered with `unimplemented`.
 */
export class ExecPlane implements DataPlane {
  readonly #options: ExecPlaneOptions;
  /** Bound: as many as callers have commands under way. */
  readonly #processes = new Map<string, ExecProcess>();
  /** Starts by their keys, until their caller has taken the answer or taken them back. */
  readonly #starting = new Map<string, Promise<ExecProcess>>();

  constructor(options: ExecPlaneOptions) {
    this.#options = options;
  }

  async request(request: PlaneRequest): Promise<PlaneResponse> {
    if (request.port !== daemonPort)
      throw new SandboxError("unsupported", `port ${request.port} cannot be reached through pods/exec`);
    const method = request.path.startsWith(`/${processService}/`) ? request.path.slice(processService.length + 2) : "";
    const body =
      request.body instanceof Uint8Array
        ? request.body
        : new TextEncoder().encode(typeof request.body === "string" ? request.body : "");
    switch (method) {
      case "Start":
        return this.#start(decodeMessage<StartMessage>(startType, body.subarray(5)), request.signal);
      case "Cancel":
        return this.#cancel(parse(body));
      case "WriteStdin":
        return this.#writeStdin(parse(body));
      case "Signal":
        return this.#signal(parse(body));
      case "Resize":
        return this.#resize(parse(body));
      default:
        return failure("unimplemented", "this sandbox has no daemon, and pods/exec cannot do that");
    }
  }

  close(): Promise<void> {
    for (const process of this.#processes.values()) process.close();
    return Promise.resolve();
  }

  async #start(
    { spec, idempotencyKey, service }: StartMessage,
    signal: AbortSignal | undefined,
  ): Promise<PlaneResponse> {
    if (service !== undefined) return failure("unimplemented", "without the daemon nothing keeps a service running");
    if (spec.user !== undefined) return failure("unimplemented", "pods/exec cannot run commands as another user");
    // Not ended by the caller's signal: a command that may have begun must be known to be ended.
    const starting = this.#open(spec);
    this.#starting.set(idempotencyKey, starting);
    const process = await untilAborted(starting, signal);
    this.#starting.delete(idempotencyKey);
    this.#processes.set(process.id, process);
    return { status: 200, headers: { "content-type": "application/connect+json" }, body: this.#follow(process, spec) };
  }

  async #open(spec: WireSpec): Promise<ExecProcess> {
    const { transport, namespace, findPod, newId } = this.#options;
    return ExecProcess.start({ transport, namespace, pod: (await findPod()).name, id: newId(), spec });
  }

  /** Ends what a start began that its caller has given up. */
  async #cancel({ idempotencyKey }: { idempotencyKey: string }): Promise<PlaneResponse> {
    const process = await this.#starting.get(idempotencyKey)?.catch(() => undefined);
    this.#starting.delete(idempotencyKey);
    if (process !== undefined) {
      await process.started;
      await this.#kill(process, "KILL").finally(() => process.close());
    }
    return json(200, {});
  }

  async *#follow(process: ExecProcess, { timeout }: WireSpec): AsyncGenerator<Uint8Array> {
    const timer =
      timeout === undefined ? undefined : setTimeout(() => this.#expire(process), Number.parseFloat(timeout) * 1000);
    try {
      let hasEnded = false;
      for await (const event of process.events()) {
        hasEnded = event.exit !== undefined;
        yield frame(event, 0);
      }
      if (hasEnded) yield frame({}, endStreamFlag);
      // A lost connection loses the command's end with it: there is nothing to attach to.
      else
        yield frame(
          { error: { code: "aborted", message: "the connection broke, and pods/exec cannot be picked up again" } },
          endStreamFlag,
        );
    } finally {
      clearTimeout(timer);
      this.#processes.delete(process.id);
      process.close();
    }
  }

  #expire(process: ExecProcess): void {
    process.markTimedOut();
    void this.#kill(process, "KILL").catch(() => process.close());
  }

  async #writeStdin({
    id,
    data = "",
    close = false,
  }: {
    id: string;
    data?: string;
    close?: boolean;
  }): Promise<PlaneResponse> {
    const process = this.#processes.get(id);
    if (process === undefined) return failure("not_found", `process "${id}" not found`);
    if (data !== "") await process.write(Buffer.from(data, "base64"));
    if (close) process.closeInput();
    return json(200, {});
  }

  async #signal({ id, signal }: { id: string; signal: string }): Promise<PlaneResponse> {
    const process = this.#processes.get(id);
    if (process === undefined) return failure("not_found", `process "${id}" not found`);
    return json(200, { signalled: (await this.#kill(process, signal.replace(/^SIG/, ""))) ? 1 : 0 });
  }

  #resize({ id, size }: { id: string; size: { cols: number; rows: number } }): PlaneResponse {
    this.#processes.get(id)?.resize(size);
    return json(200, {});
  }

  /** Signals a process by a second one, which is all that exec offers; descendants are not found this way. */
  async #kill({ pid = 0 }: ExecProcess, name: string): Promise<boolean> {
    if (pid === 0) return false;
    const { transport, namespace, findPod, newId } = this.#options;
    const spec = { command: ["/bin/sh", "-c", 'kill -"$0" "$1"', name, String(pid)] };
    const killer = await ExecProcess.start({ transport, namespace, pod: (await findPod()).name, id: newId(), spec });
    for await (const { exit } of killer.events()) if (exit !== undefined) return (exit.code ?? 0) === 0;
    return false;
  }
}

function parse<T>(bytes: Uint8Array): T {
  return JSON.parse(new TextDecoder().decode(bytes)) as T;
}

function frame(message: WireEvent | object, flags: number): Uint8Array {
  return encodeEnvelope(new TextEncoder().encode(JSON.stringify(message)), flags);
}

function failure(code: string, message: string): PlaneResponse {
  return json(code === "not_found" ? 404 : 501, { code, message });
}

function json(status: number, value: object): PlaneResponse {
  return { status, headers: { "content-type": "application/json" }, body: once(JSON.stringify(value)) };
}

async function* once(text: string): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode(text);
}
