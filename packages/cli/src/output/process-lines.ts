/** Which lines of a sandbox's log are wanted, and how many. */
export interface LineChoice {
  /** A service, a tag, an id or its first eight digits; `entrypoint` for the sandbox's own process. */
  readonly process: string;
  /** Each line begins with its time. */
  readonly hasTimes: boolean;
  /** Only the last of them. Kept in memory, as many as are asked for. */
  readonly tailLines?: number;
  /** What comes is passed on as it comes: which lines are the last is never known. */
  readonly isFollowed: boolean;
}

/** The lines of one process, which begin with its label in brackets. The label is the daemon's; a program may print lines that look the same. */
export async function* processLines(
  log: AsyncIterable<Uint8Array>,
  { process, hasTimes, tailLines, isFollowed }: LineChoice,
): AsyncGenerator<string> {
  const last: string[] = [];
  for await (const line of linesOf(log)) {
    if (!isFrom(process, labelOf(hasTimes ? line.slice(line.indexOf(" ") + 1) : line))) continue;
    if (tailLines === undefined || isFollowed) yield line;
    else if (last.push(line) > tailLines) last.shift();
  }
  yield* last;
}

async function* linesOf(log: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of log) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) yield `${line}\n`;
  }
  if (rest !== "") yield rest;
}

function labelOf(line: string): string | undefined {
  return /^\[([!-\\^-~]{1,64})\] /.exec(line)?.[1];
}

const idPattern = /^[0-9a-f]{8}(?:[0-9a-f]{8})?$/;

function isFrom(process: string, label: string | undefined): boolean {
  if (label === undefined || process === "entrypoint") return label === undefined && process === "entrypoint";
  return label === process || (idPattern.test(process) && label.endsWith(`-${process.slice(0, 8)}`));
}
