import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { StreamWriter } from "@agent-sandbox/kube";
import { Code, ConnectError } from "@connectrpc/connect";
import type { ContainerProcess } from "../host/container.ts";
import type { Host } from "../host/host.ts";
import { HostError } from "../host/host-error.ts";
import type { CommandOutcome } from "./command-outcome.ts";
import { openOutput, type RemoteCommand, type TerminalSize } from "./remote-command.ts";
import type { SandboxdClient } from "./sandboxd-client.ts";

/** A running container, and the ways into it. */
export interface CommandTarget {
  readonly hostId: string;
  /** What the container's own process has: user, variables, directory. */
  readonly process: ContainerProcess;
  /** Absent: no daemon serves in this container. */
  readonly sandboxd?: SandboxdClient;
}

/** Output kept of a command of a probe or a hook. */
const capturedBytesMax = 10 * 1024;

/** A terminal's size until the client has said its own. */
const sizeDefault: TerminalSize = { cols: 80, rows: 24 };

/** Runs commands in containers: through the daemon where it serves, else through the runtime. */
export class CommandRunner {
  readonly #host: Host;

  constructor(host: Host) {
    this.#host = host;
  }

  /** Runs a command with the client's streams and resolves with how it ended. */
  async exec(
    target: CommandTarget,
    command: readonly string[],
    tty: boolean,
    remote: RemoteCommand,
  ): Promise<CommandOutcome> {
    if (target.sandboxd !== undefined) {
      const outcome = await execThroughSandboxd(target.sandboxd, { command, tty, remote });
      if (outcome !== undefined) return outcome;
    }
    return this.#execThroughRuntime(target, command, tty, remote);
  }

  /** Runs a command without a client; resolves with its exit code and the head of its output. */
  async capture(
    target: CommandTarget,
    command: readonly string[],
    signal: AbortSignal,
  ): Promise<{ exitCode: number; output: string }> {
    const process = { ...target.process, argv: [...command] };
    await using stream = await this.#host.exec({ id: target.hostId, process, stdin: false }, signal);
    using _over = onAbort(signal, () => void stream.close());
    const [stdout, stderr, exitCode] = await Promise.all([head(stream.stdout), head(stream.stderr), stream.exit]);
    return { exitCode, output: Buffer.concat([stdout, stderr]).subarray(0, capturedBytesMax).toString("utf8") };
  }

  async #execThroughRuntime(
    target: CommandTarget,
    command: readonly string[],
    tty: boolean,
    remote: RemoteCommand,
  ): Promise<CommandOutcome> {
    const process = { ...target.process, argv: [...command] };
    const terminal = tty ? { columns: sizeDefault.cols, rows: sizeDefault.rows } : undefined;
    try {
      const request = {
        id: target.hostId,
        process,
        stdin: remote.stdin !== undefined,
        ...(terminal !== undefined && { terminal }),
      };
      await using stream = await this.#host.exec(request, remote.signal);
      // A client that has gone ends its command, also one that prints nothing and does not read its input.
      using _gone = onAbort(remote.signal, () => void stream.close());
      const { stdout, stderr } = openOutput(remote);
      remote.onResize(({ cols, rows }) => stream.resize({ columns: cols, rows }));
      if (remote.stdin !== undefined) void pipeline(remote.stdin, stream.stdin).catch(() => undefined);
      await Promise.all([forwardOutput(stream.stdout, stdout), forwardOutput(stream.stderr, stderr)]);
      return { kind: "exited", exitCode: await stream.exit };
    } catch (error) {
      if (!(error instanceof HostError)) throw error;
      return { kind: "failed", message: error.message };
    }
  }
}

interface SandboxdExec {
  readonly command: readonly string[];
  readonly tty: boolean;
  readonly remote: RemoteCommand;
}

/** Undefined when no daemon answers: nothing was started then, and the runtime can be asked instead. */
async function execThroughSandboxd(
  client: SandboxdClient,
  { command, tty, remote }: SandboxdExec,
): Promise<CommandOutcome | undefined> {
  let isStarted = false;
  const terminal = tty ? { terminal: sizeDefault } : {};
  const spec = { command: [...command], stdin: remote.stdin !== undefined, ...terminal };
  const { stdout, stderr } = openOutput(remote);
  try {
    for await (const { event } of client.start({ spec, killOnDisconnect: true }, { signal: remote.signal })) {
      switch (event.case) {
        case "started":
          isStarted = true;
          connectInput(client, event.value.id, remote);
          break;
        case "stdout":
          await stdout?.send(event.value.data);
          break;
        case "stderr":
          await (stderr ?? stdout)?.send(event.value.data);
          break;
        case "exit":
          return { kind: "exited", exitCode: event.value.code };
        default:
          break;
      }
    }
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
    if (!isStarted && error.code === Code.Unavailable) return undefined;
    return { kind: "failed", message: error.rawMessage };
  }
  return { kind: "failed", message: "the sandbox ended before the command did" };
}

function connectInput(client: SandboxdClient, id: string, remote: RemoteCommand): void {
  remote.onResize((size) => {
    // A process that has just ended has no window; nothing is lost.
    void client.resize({ id, size }).catch(() => undefined);
  });
  if (remote.stdin !== undefined)
    void client.streamStdin(stdinMessages(id, remote.stdin), { signal: remote.signal }).catch(() => undefined);
}

async function* stdinMessages(id: string, stdin: Readable): AsyncGenerator<{ id: string; data: Uint8Array }> {
  yield { id, data: new Uint8Array() };
  for await (const chunk of stdin) yield { id: "", data: chunk as Buffer };
}

async function forwardOutput(from: Readable, to: StreamWriter | undefined): Promise<void> {
  for await (const chunk of from) await to?.send(chunk as Buffer);
}

/** Calls back once when the signal aborts, or has already; disposing forgets it. */
function onAbort(signal: AbortSignal, call: () => void): Disposable {
  if (signal.aborted) call();
  signal.addEventListener("abort", call, { once: true });
  return { [Symbol.dispose]: () => signal.removeEventListener("abort", call) };
}

async function head(stream: Readable): Promise<Buffer> {
  let kept = Buffer.alloc(0);
  for await (const chunk of stream) {
    if (kept.length < capturedBytesMax) kept = Buffer.concat([kept, chunk as Buffer]);
  }
  return kept.subarray(0, capturedBytesMax);
}
