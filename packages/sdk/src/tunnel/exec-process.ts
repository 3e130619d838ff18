import { pathOf, pods } from "@agent-sandbox/api/resource";
import type { Transport } from "@agent-sandbox/kube/transport";
import type { WireEvent, WireExit, WireSpec } from "../process/wire.ts";
import { ChannelSocket } from "./channel-socket.ts";

/** A command to run through `pods/exec`. */
export interface ExecRequest {
  readonly transport: Transport;
  readonly namespace: string;
  readonly pod: string;
  readonly container?: string;
  readonly id: string;
  readonly spec: WireSpec;
  readonly signal?: AbortSignal | undefined;
}

const channels = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4, close: 255 } as const;

/** Pauses reading beyond this; the server feels it through TCP. */
const queueEventsMax = 256;

/**
 * One process behind `pods/exec`, reported in the events of sandboxd. The process is started by the image's own shell, which
 * first prints its process id, so that it can be signalled; when the connection is lost, it cannot be followed again.
 */
export class ExecProcess {
  readonly id: string;
  /** Its process id, once known. */
  pid: number | undefined;
  /** Resolves when the process id is known, or never will be. */
  readonly started: Promise<void>;
  readonly #tellStarted: () => void;
  #socket: ChannelSocket | undefined;
  readonly #events: WireEvent[] = [];
  #wake: (() => void) | undefined;
  #isOver = false;
  #offset = 0;
  #head = Buffer.alloc(0);
  #timedOut = false;

  private constructor(id: string) {
    this.id = id;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.started = promise;
    this.#tellStarted = resolve;
  }

  static async start(request: ExecRequest): Promise<ExecProcess> {
    const { transport, namespace, pod, container, id, spec, signal } = request;
    const process = new ExecProcess(id);
    const query = new URLSearchParams({ stdout: "true", stderr: String(spec.terminal === undefined) });
    if (spec.stdin === true || spec.terminal !== undefined) query.set("stdin", "true");
    if (spec.terminal !== undefined) query.set("tty", "true");
    if (container !== undefined) query.set("container", container);
    for (const word of shellCommand(spec)) query.append("command", word);
    process.#socket = await ChannelSocket.open({
      transport,
      path: `${pathOf(pods, { namespace, name: pod })}/exec?${query.toString()}`,
      // Only the fifth version can close standard input.
      protocols: ["v5.channel.k8s.io", "v4.channel.k8s.io"],
      signal,
      onMessage: (channel, payload) => process.#receive(channel, payload),
      onClose: () => process.#finish(undefined),
    });
    if (spec.terminal !== undefined) process.resize(spec.terminal);
    return process;
  }

  /** Events from `started` to `exit`; ends without an exit when the connection was lost. */
  async *events(): AsyncGenerator<WireEvent> {
    for (;;) {
      const event = this.#events.shift();
      if (event !== undefined) {
        this.#socket?.resume();
        yield event;
        if (event.exit !== undefined) return;
      } else if (this.#isOver) return;
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Writes to standard input. */
  write(bytes: Uint8Array): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#socket?.send(channels.stdin, bytes, (error) => (error ? reject(error) : resolve()));
    return promise;
  }

  /** Closes standard input, where the server can. */
  closeInput(): void {
    if (this.#socket?.protocol === "v5.channel.k8s.io")
      this.#socket.send(channels.close, Uint8Array.of(channels.stdin));
  }

  /** Tells the terminal its size. */
  resize({ cols, rows }: { readonly cols: number; readonly rows: number }): void {
    this.#socket?.send(channels.resize, Buffer.from(JSON.stringify({ Width: cols, Height: rows })));
  }

  /** The next exit is reported as one by the command's timeout. */
  markTimedOut(): void {
    this.#timedOut = true;
  }

  close(): void {
    this.#socket?.close();
  }

  #receive(channel: number, payload: Buffer): void {
    if (channel === channels.error) return this.#finish(exitOf(payload.toString("utf8"), this.#timedOut));
    if (channel === channels.stdout) this.#output("stdout", this.pid === undefined ? this.#takeHead(payload) : payload);
    else if (channel === channels.stderr) this.#output("stderr", payload);
  }

  /** Reads the first line, the process id, off the output. */
  #takeHead(payload: Buffer): Buffer {
    this.#head = Buffer.concat([this.#head, payload]);
    const newline = this.#head.indexOf(10);
    if (newline < 0) return Buffer.alloc(0);
    this.pid = Number.parseInt(this.#head.subarray(0, newline).toString("utf8"), 10) || 0;
    this.#push({ started: { id: this.id, pid: this.pid } });
    this.#tellStarted();
    return this.#head.subarray(newline + 1);
  }

  #output(kind: "stdout" | "stderr", bytes: Buffer): void {
    if (bytes.length === 0) return;
    const output = { data: bytes.toString("base64"), offset: String(this.#offset) };
    this.#offset += bytes.length;
    this.#push(kind === "stdout" ? { stdout: output } : { stderr: output });
  }

  #finish(exit: WireExit | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#tellStarted();
    // The shell could not even say who it is: there is none, or it could not be started.
    if (this.pid === undefined && exit !== undefined) this.#push({ started: { id: this.id } });
    if (exit !== undefined) this.#push({ exit });
    this.#wake?.();
  }

  #push(event: WireEvent): void {
    this.#events.push(event);
    if (this.#events.length > queueEventsMax) this.#socket?.pause();
    this.#wake?.();
  }
}

/** The command behind a shell that says its process id, goes to the directory and sets the environment. Exported for tests. */
export function shellCommand({ command, cwd, env = {}, clearEnv }: WireSpec): string[] {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  const isPlain = variables.length === 0 && clearEnv !== true;
  const wrapped = isPlain ? command : ["env", ...(clearEnv === true ? ["-i"] : []), ...variables, ...command];
  const script = 'echo $$; if [ -n "$1" ]; then cd -- "$1" || exit 126; fi; shift; exec "$@"';
  return ["/bin/sh", "-c", script, "sh", cwd ?? "", ...wrapped];
}

interface ExecStatus {
  readonly status?: string;
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly reason?: string; readonly message?: string }[] };
}

/** The exit that the error channel's Status tells of; codes above 128 are signals, as in shells. Exported for tests. */
export function exitOf(text: string, timedOut: boolean): WireExit {
  const { status, details } = JSON.parse(text) as ExecStatus;
  if (status === "Success") return { code: 0, timedOut };
  const code = details?.causes?.find(({ reason }) => reason === "ExitCode")?.message;
  return { code: code === undefined ? 126 : Number(code), timedOut };
}
