import type { ClaimClock } from "../claim-status/claim-times.ts";
import type { ExtensionContext } from "../extension-context.ts";
import type { WarmQueue } from "./warm-queue.ts";

/** What the steps of a pass over a claim work with. */
export interface ClaimContext extends ExtensionContext {
  readonly warm: WarmQueue;
  readonly times: ClaimClock;
  /** Claims whose cold Sandbox was asked for without an answer: it may exist though no cache shows it. Bound: the claims. */
  readonly unresolved: Set<string>;
  /**
   * Sandboxes that a claim was last judged by in a version of our own writing, ahead of the watch: their next event
   * counts whatever it changed, for the version that was judged may never come. Bound: the Sandboxes.
   */
  readonly ahead: Set<string>;
}
