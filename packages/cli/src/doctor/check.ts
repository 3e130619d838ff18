import type { Context } from "../context.ts";

/** The input of a check. */
export interface Question {
  readonly context: Context;
  readonly dataDir: string;
}

/** What a look found. `warning`: sandboxes work, and something is worse than it could be. */
export interface Look {
  readonly verdict: "ok" | "warning" | "broken";
  readonly detail: string;
  /** What to do about it. */
  readonly advice?: string;
}

/** A look, with its check's title. */
export interface Finding extends Look {
  readonly title: string;
  readonly durationMs: number;
}

/** One thing to test; a look that throws is broken. */
export interface Check {
  readonly title: string;
  readonly look: (question: Question) => Promise<Look>;
  /** Tries to make it work; looked at again afterwards. */
  readonly mend?: (question: Question) => Promise<void>;
}
