import type { Look } from "@agent-sandbox/server/main/preflight/look";
import type { Context } from "../context.ts";

/** The input of a check. */
export interface Question {
  readonly context: Context;
  readonly dataDir: string;
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
