import { constants, watch } from "node:fs";
import { type FileHandle, open, readdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type FollowPace, FollowPaces } from "./follow-pace.ts";
import { type LogLine, lineBytesMax, tryParseLogLine } from "./log-line.ts";

/** What part of a log is wanted, in the words of `kubectl logs`. */
export interface LogOptions {
  readonly follow: boolean;
  readonly tailLines?: number;
  readonly sinceMs?: number;
  readonly timestamps: boolean;
  readonly limitBytes?: number;
  readonly stream?: "stdout" | "stderr";
  /** `raw`: the file holds bare output, each line dated by when it is read. Default `cri`. */
  readonly format?: "cri" | "raw";
}

/** A log to read. */
export interface LogRequest {
  /** The file being written; rotated ones lie beside it with a suffix. */
  readonly path: string;
  readonly options: LogOptions;
  /** Whether the container may still write; asked when the end of the file is reached. */
  readonly isLive: () => boolean;
  readonly signal: AbortSignal;
  /** Shared by all who follow logs of one pod; default one of its own. */
  readonly pace?: FollowPace;
}

/** Bytes read at once. */
const chunkBytes = 64 * 1024;

/** How long lines that come one by one are gathered. */
const gatherMs = 20;

/** How often a followed file is looked at even without a notice: notices get lost on rotation. */
const lookAgainMs = 1_000;

/** Yields a container's log as `kubectl logs` prints it: rotated files first, then the file being written. */
export async function* readLogs({ path, options, isLive, signal, pace }: LogRequest): AsyncGenerator<Buffer> {
  let left = options.limitBytes ?? Number.POSITIVE_INFINITY;
  const emit = (lines: readonly LogLine[]): Buffer => {
    const whole = Buffer.concat(lines.flatMap((line) => formatLine(line, options.timestamps)));
    const bytes = whole.subarray(0, left);
    left -= bytes.length;
    return bytes;
  };
  const follower = new LogFollower(path, options.format ?? "cri", pace);
  try {
    let skip = options.tailLines === undefined ? 0 : (await countLines(follower, options)) - options.tailLines;
    for await (const lines of follower.present()) {
      const wanted = lines.filter((line) => isWanted(line, options));
      const bytes = emit(skip > 0 ? wanted.slice(skip) : wanted);
      skip -= wanted.length;
      if (bytes.length > 0) yield bytes;
      if (left === 0 || signal.aborted) return;
    }
    if (!options.follow) return;
    for await (const lines of follower.coming(isLive, signal)) {
      const bytes = emit(lines.filter((line) => isWanted(line, options)));
      if (bytes.length > 0) yield bytes;
      if (left === 0) return;
    }
  } finally {
    await follower.close();
  }
}

/** The end of a log is found by reading it twice: a sandbox may have put any number of lines of any length into it. */
async function countLines(follower: LogFollower, options: LogOptions): Promise<number> {
  let count = 0;
  for await (const lines of follower.present()) count += lines.filter((line) => isWanted(line, options)).length;
  return count;
}

function isWanted(line: LogLine, { sinceMs, stream }: LogOptions): boolean {
  if (stream !== undefined && line.stream !== stream) return false;
  return sinceMs === undefined || Date.parse(line.time) >= sinceMs;
}

const lineEnd = Buffer.from("\n");

function formatLine({ time, text, isPartial }: LogLine, timestamps: boolean): Buffer[] {
  return [...(timestamps ? [Buffer.from(`${time} `)] : []), text, ...(isPartial ? [] : [lineEnd])];
}

/** Reads a log file across rotations. The file is the sandbox's to write, so no link is followed out of it. */
class LogFollower {
  readonly #path: string;
  readonly #format: "cri" | "raw";
  readonly #pace: FollowPace;
  #file: FileHandle | undefined;
  #inode = 0;
  #offset = 0;
  #pending: Buffer = Buffer.alloc(0);

  constructor(path: string, format: "cri" | "raw", pace: FollowPace = new FollowPaces().open(path)) {
    this.#path = path;
    this.#format = format;
    this.#pace = pace;
  }

  /** Everything that is there, the oldest rotated file first. */
  async *present(): AsyncGenerator<LogLine[]> {
    for (const path of await rotatedFiles(this.#path)) {
      const file = await openWritten(path);
      if (file === undefined) continue;
      const reader = new LogFollower(path, this.#format);
      reader.#file = file;
      yield* reader.#rest();
      await reader.close();
    }
    await this.#reopen();
    yield* this.#rest();
  }

  /** What is written from here on, until the writer is gone or the reader leaves. */
  async *coming(isLive: () => boolean, signal: AbortSignal): AsyncGenerator<LogLine[]> {
    while (!signal.aborted) {
      // Asked before reading: what was written before the end is then certainly read.
      const live = isLive();
      yield* this.#paced(signal);
      if (await this.#rotated()) {
        yield* this.#paced(signal);
        await this.#reopen();
        continue;
      }
      if (!live) return;
      await changed(this.#path, signal);
      await pause(gatherMs, signal);
    }
  }

  async *#paced(signal: AbortSignal): AsyncGenerator<LogLine[]> {
    let counted = this.#offset;
    for await (const lines of this.#rest()) {
      yield lines;
      if (signal.aborted) return;
      const waitMs = this.#pace.spend(this.#offset - counted, performance.now());
      counted = this.#offset;
      if (waitMs > gatherMs) await pause(waitMs, signal);
    }
  }

  async close(): Promise<void> {
    await this.#file?.close();
    this.#file = undefined;
  }

  async #reopen(): Promise<void> {
    await this.close();
    this.#file = await openWritten(this.#path);
    this.#offset = 0;
    this.#pending = Buffer.alloc(0);
    this.#inode = this.#file === undefined ? 0 : (await this.#file.stat()).ino;
  }

  async #rotated(): Promise<boolean> {
    if (this.#file === undefined) {
      await this.#reopen();
      return false;
    }
    const current = await openWritten(this.#path);
    if (current === undefined) return false;
    const { ino, size } = await current.stat();
    await current.close();
    return ino !== this.#inode || size < this.#offset;
  }

  /** The lines of one piece after the other. Bound: one piece and the line that it begins with. */
  async *#rest(): AsyncGenerator<LogLine[]> {
    const buffer = Buffer.alloc(chunkBytes);
    while (this.#file !== undefined) {
      const { bytesRead } = await this.#file.read(buffer, 0, chunkBytes, this.#offset);
      if (bytesRead === 0) return;
      this.#offset += bytesRead;
      yield this.#split(Buffer.from(buffer.subarray(0, bytesRead)));
    }
  }

  #split(chunk: Buffer): LogLine[] {
    const bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    const lines: LogLine[] = [];
    let at = 0;
    for (let end = bytes.indexOf(0x0a); end >= 0; end = bytes.indexOf(0x0a, at)) {
      const text = bytes.subarray(at, end);
      const line = this.#format === "raw" ? rawLine(text) : tryParseLogLine(text);
      if (line !== undefined) lines.push(line);
      at = end + 1;
    }
    const rest = bytes.subarray(at);
    // A line without an end that outgrows the limit is dropped: the writer never makes one.
    this.#pending = rest.length > lineBytesMax * 2 ? Buffer.alloc(0) : rest;
    return lines;
  }
}

function rawLine(text: Buffer): LogLine {
  return { time: new Date().toISOString(), stream: "stdout", isPartial: false, text };
}

/** Opens a regular file that a sandbox may have written, through no link; undefined when there is none. */
export async function openWritten(path: string): Promise<FileHandle | undefined> {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  return inDirectory(dirname(path), async (directory) => {
    const file = await open(join(directory, basename(path)), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if ((await file.stat()).isFile()) return file;
    await file.close();
    return undefined;
  });
}

/**
 * Calls back with a name of a directory that no link stands in for: the directory is the sandbox's too, and a link in its place
 * would lead to another sandbox's log. Undefined when there is no such directory or file.
 */
async function inDirectory<T>(path: string, use: (directory: string) => Promise<T>): Promise<T | undefined> {
  const { O_RDONLY, O_NOFOLLOW, O_DIRECTORY } = constants;
  let directory: FileHandle | undefined;
  try {
    directory = await open(path, O_RDONLY | O_NOFOLLOW | O_DIRECTORY);
    return await use(`/proc/self/fd/${directory.fd}`);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== undefined && absentCodes.has(code)) return undefined;
    throw error;
  } finally {
    await directory?.close();
  }
}

/** What opening says of a file that is not there, or is none: a link, a socket, a directory's place taken by something else, or one that is not mounted after a reboot. */
const absentCodes: ReadonlySet<string> = new Set(["ENOENT", "ELOOP", "ENXIO", "ENOTDIR", "EACCES"]);

/** `<file>.<n>` or `<file>.<time>`, oldest first: greater numbers are older, times sort as they are. */
async function rotatedFiles(path: string): Promise<string[]> {
  const prefix = `${basename(path)}.`;
  const names = (await inDirectory(dirname(path), (directory) => readdir(directory))) ?? [];
  const suffixes = names.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
  const isNumbered = suffixes.every((suffix) => /^\d{1,4}$/.test(suffix));
  const sorted = isNumbered ? suffixes.sort((a, b) => Number(b) - Number(a)) : suffixes.sort();
  return sorted.slice(-16).map((suffix) => join(dirname(path), `${prefix}${suffix}`));
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return sleep(ms, undefined, { signal, ref: false }).catch(() => undefined);
}

function changed(path: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      watcher?.close();
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, lookAgainMs);
    let watcher: ReturnType<typeof watch> | undefined;
    try {
      watcher = watch(dirname(path), done);
      watcher.on("error", done);
    } catch {
      // Without a notice the timer looks again.
    }
    signal.addEventListener("abort", done, { once: true });
  });
}
