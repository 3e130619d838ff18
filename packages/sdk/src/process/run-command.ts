import { readChunks } from "../plane/data-plane.ts";
import { type Command, type RunOptions, type SpawnOptions, wireSpecOf } from "./run-options.ts";
import { CommandError, type RunResult, runResult } from "./run-result.ts";
import type { ProcessParts, SandboxProcess } from "./sandbox-process.ts";
import type { WireSpec } from "./wire.ts";

/** Starts a process and resolves when it runs. */
type StartProcess = (
  spec: WireSpec,
  options: SpawnOptions,
  onOutput: ProcessParts["onOutput"],
) => Promise<SandboxProcess>;

/** Runs a command to its end and collects what it printed. */
export async function runCommand(start: StartProcess, command: Command, options: RunOptions): Promise<RunResult> {
  const { stdin, signal, onStdout, onStderr, check } = options;
  const hasInput = stdin !== undefined && !(typeof stdin === "string" && stdin === "");
  const spec = { ...wireSpecOf(command, options), ...(hasInput && { stdin: true }) };
  const combined: Uint8Array[] = [];
  const process = await start(spec, options, (bytes) => combined.push(bytes));
  const collect = (stream: AsyncIterable<Uint8Array>, onText: RunOptions["onStdout"]): Promise<Uint8Array[]> =>
    readChunks(onText === undefined ? stream : observed(stream, onText));
  const input = hasInput ? process.stdin.feed(stdin, signal) : Promise.resolve();
  // The streams fail together with `exited`; all are awaited, so that none is left unhandled.
  const [stdout, stderr, status] = await settle(process, [
    collect(process.stdout, onStdout),
    collect(process.stderr, onStderr),
    input,
  ]);
  // The kill that an abort causes may be seen before the abort itself.
  signal?.throwIfAborted();
  const { droppedBytes } = process;
  const result = runResult(status, { stdout, stderr, combined, droppedBytes });
  if (status.timedOut || (check === true && status.exitCode !== 0)) {
    throw new CommandError(typeof command === "string" ? command : command.join(" "), result);
  }
  return result;
}

type Settled = [Uint8Array[], Uint8Array[], Awaited<SandboxProcess["exited"]>];

async function settle(
  process: SandboxProcess,
  [stdout, stderr, input]: [Promise<Uint8Array[]>, Promise<Uint8Array[]>, Promise<void>],
): Promise<Settled> {
  const settled = await Promise.allSettled([process.exited, stdout, stderr, input]);
  for (const one of settled) if (one.status === "rejected") throw one.reason;
  return [await stdout, await stderr, await process.exited];
}

async function* observed(
  stream: AsyncIterable<Uint8Array>,
  onText: (text: string) => void,
): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder();
  const tell = (text: string): void => {
    if (text !== "") onText(text);
  };
  for await (const chunk of stream) {
    tell(decoder.decode(chunk, { stream: true }));
    yield chunk;
  }
  tell(decoder.decode());
}
