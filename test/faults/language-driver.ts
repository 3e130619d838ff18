import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Order, Outcome, Report } from "./protocol.ts";

/** How a driver is started. */
export interface DriverCommand {
  readonly language: string;
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
}

/** A call that a driver makes. */
export interface DrivenCall {
  /** Resolves when the phase is reached, or the call has ended before. */
  readonly reached: Promise<void>;
  readonly ended: Promise<Outcome>;
}

/** One program per language that makes one call after the other, or several at once. */
export class LanguageDriver implements Disposable {
  readonly language: string;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #calls = new Map<number, { reach: () => void; end: (outcome: Outcome) => void }>();
  #nextId = 1;
  #errors = "";

  constructor({ language, argv: [program = "", ...args], cwd, env }: DriverCommand) {
    this.language = language;
    this.#child = spawn(program, args, { cwd, env, stdio: "pipe" });
    this.#child.stderr.on("data", (chunk: Buffer) => (this.#errors = (this.#errors + chunk.toString()).slice(-4000)));
    createInterface({ input: this.#child.stdout }).on("line", (line) => this.#take(JSON.parse(line) as Report));
    this.#child.once("exit", (code) => {
      const text = `the driver ended with ${code}: ${this.#errors}`;
      for (const { end } of this.#calls.values()) end({ kind: "untyped", text });
    });
  }

  /** Makes a call. */
  call(phase: Order["phase"], sandbox: string): DrivenCall {
    const id = this.#nextId;
    this.#nextId += 1;
    const reached = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<Outcome>();
    this.#calls.set(id, { reach: reached.resolve, end: ended.resolve });
    this.#child.stdin.write(`${JSON.stringify({ id, phase, sandbox } satisfies Order)}\n`);
    return { reached: Promise.race([reached.promise, ended.promise.then(() => undefined)]), ended: ended.promise };
  }

  [Symbol.dispose](): void {
    this.#child.kill("SIGKILL");
  }

  #take(report: Report): void {
    const call = this.#calls.get(report.id);
    if (report.at === "phase") call?.reach();
    else {
      call?.end(report.outcome);
      this.#calls.delete(report.id);
    }
  }
}
