import type { SandboxProcess } from "@agent-sandbox/sdk";

/** A program takes what was typed within moments; input that lies for longer is that of one that does not read, or cannot be reached. */
const stalledAfterMs = 2_000;

/** What was typed since the sandbox stopped taking it; more than this is let go. */
const typedBytesMax = 64 * 1024;

const interruptByte = 3;

/** How this program's input is forwarded. */
export interface InputOptions {
  /** The input is that of a terminal in raw mode: Ctrl-C comes as a byte. */
  readonly isTerminal: boolean;
  /** Ctrl-C was typed and the sandbox does not take it. */
  readonly onStalledInterrupt: () => void;
}

/** Gives input to a process, one piece at a time, so that a slow one holds it back; a terminal's Ctrl-C is seen all the same. */
export function forwardInput(
  stdin: NodeJS.ReadStream,
  process_: SandboxProcess,
  { isTerminal, onStalledInterrupt }: InputOptions,
): Disposable {
  let typed: Buffer[] = [];
  let isStalled = false;
  const send = async (chunk: Buffer): Promise<void> => {
    stdin.pause();
    const timer = isTerminal ? setTimeout(stall, stalledAfterMs) : undefined;
    // The process closed its input or is gone, or the connection broke: what is not taken is dropped, and `exited` tells why.
    const isTaken = await process_.stdin.write(chunk).then(
      () => true,
      () => false,
    );
    clearTimeout(timer);
    if (!isTaken) return isTerminal ? stall() : undefined;
    isStalled = false;
    const waiting = Buffer.concat(typed);
    typed = [];
    if (waiting.length > 0) await send(waiting);
    else stdin.resume();
  };
  const stall = (): void => {
    isStalled = true;
    stdin.resume();
  };
  const onChunk = (chunk: Buffer): void => {
    if (!isStalled) return void send(chunk);
    if (chunk.includes(interruptByte)) onStalledInterrupt();
    else if (Buffer.concat(typed).length < typedBytesMax) typed.push(chunk);
  };
  const onEnd = (): void => void process_.stdin.end().catch(() => undefined);
  stdin.on("data", onChunk);
  if (!isTerminal || !stdin.isTTY) stdin.once("end", onEnd);
  return {
    [Symbol.dispose]: () => {
      stdin.off("data", onChunk);
      stdin.off("end", onEnd);
      stdin.pause();
    },
  };
}
