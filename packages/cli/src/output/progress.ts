import { type Context, hasColour } from "../context.ts";
import { harmless, unguarded } from "../terminal/harmless.ts";

/** One line on standard error that says what is being waited for; silent unless that is a terminal. */
export class Progress implements Disposable {
  readonly #context: Context;
  #isShown = false;

  constructor(context: Context) {
    this.#context = context;
  }

  /** Replaces the line. */
  show(text: string): void {
    const { stderr, env } = this.#context;
    if (stderr.isTTY !== true) return;
    const room = Math.max(20, (stderr.columns ?? 80) - 3);
    const shown = harmless(text.length > room ? `${text.slice(0, room - 1)}…` : text);
    const dim = hasColour(stderr, env) ? `\x1b[2m${shown}\x1b[22m` : shown;
    unguarded(stderr).write(`\r\x1b[K${dim}`);
    this.#isShown = true;
  }

  /** Removes the line. */
  clear(): void {
    if (this.#isShown) unguarded(this.#context.stderr).write("\r\x1b[K");
    this.#isShown = false;
  }

  [Symbol.dispose](): void {
    this.clear();
  }
}
