import { PassThrough } from "node:stream";
import type { ContainerProcess } from "./container.ts";
import { HostError } from "./host-error.ts";

/** A process of a FakeHost: it ends by itself, or when a test says so. */
export class FakeProcess {
  readonly stdin = new PassThrough();
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  readonly ended: Promise<{ readonly exitCode: number; readonly signal?: number }>;
  readonly #ended = Promise.withResolvers<{ readonly exitCode: number; readonly signal?: number }>();
  #over = false;

  constructor() {
    this.ended = this.#ended.promise;
  }

  get running(): boolean {
    return !this.#over;
  }

  /** Ends it with an exit code. */
  exit(exitCode: number): void {
    this.#end({ exitCode });
  }

  /** Ends it by a signal, unless the signal is one that does not end a process. */
  kill(signal: number): void {
    this.#end({ exitCode: 128 + signal, signal });
  }

  #end(how: { readonly exitCode: number; readonly signal?: number }): void {
    if (this.#over) return;
    this.#over = true;
    this.stdout.end();
    this.stderr.end();
    this.#ended.resolve(how);
  }
}

/** What a FakeHost runs for a program: called once it has started. Undefined: no such program. */
export type FakeProgram = (argv: readonly string[], process: FakeProcess) => void;

/** The programs that every fake container has; they do what their namesakes do. */
export const fakePrograms: Readonly<Record<string, FakeProgram>> = {
  true: (_argv, process) => process.exit(0),
  false: (_argv, process) => process.exit(1),
  sleep: () => {},
  echo: (argv, process) => {
    process.stdout.write(`${argv.slice(1).join(" ")}\n`);
    process.exit(0);
  },
  cat: (_argv, process) => {
    process.stdin.on("data", (bytes: Buffer) => process.stdout.write(bytes));
    process.stdin.on("end", () => process.exit(0));
  },
  sh: runShell,
};

/** A shell of three words: `exit N`, `echo text` and `sleep N`, joined by semicolons. */
function runShell(argv: readonly string[], process: FakeProcess): void {
  for (const command of (argv[2] ?? "").split(";")) {
    const [word, ...rest] = command.trim().split(" ");
    if (word === "exit") return process.exit(Number(rest[0] ?? 0));
    if (word === "sleep") return;
    if (word === "echo" && rest.at(-1) === ">&2") process.stderr.write(`${rest.slice(0, -1).join(" ")}\n`);
    else if (word === "echo") process.stdout.write(`${rest.join(" ")}\n`);
  }
  process.exit(0);
}

/** Starts a process; throws `start-failed` for a program that there is not. */
export function startFakeProcess(spec: ContainerProcess, programs: Readonly<Record<string, FakeProgram>>): FakeProcess {
  const name = spec.argv[0]?.split("/").at(-1) ?? "";
  const program = programs[name];
  if (program === undefined) throw new HostError("start-failed", `failed to load ${spec.argv[0]}: no such file`);
  const process = new FakeProcess();
  // A real process never ends before its starter knows of it.
  queueMicrotask(() => program(spec.argv, process));
  return process;
}

/** Signals that end a process that has no handler, by number. */
export const fatalSignals: Readonly<Record<string, number>> = {
  HUP: 1,
  INT: 2,
  QUIT: 3,
  ABRT: 6,
  KILL: 9,
  USR1: 10,
  USR2: 12,
  PIPE: 13,
  ALRM: 14,
  TERM: 15,
};
