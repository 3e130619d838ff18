import { type Clock, delay } from "./clock.ts";

/** Work that is done again and again. */
export interface LoopOptions {
  /** Names the loop in errors. */
  readonly name: string;
  /** From the end of one run to the start of the next. */
  readonly everyMs: number;
  readonly run: (signal: AbortSignal) => Promise<void> | void;
  readonly clock: Clock;
  /** A run that failed; the loop goes on. */
  readonly onError?: (error: unknown, name: string) => void;
  /** Ends the loop. */
  readonly signal: AbortSignal;
}

/** Runs at once and then again and again, never twice at a time; resolves after the signal when the last run has ended. */
export async function startLoop({ name, everyMs, run, clock, onError, signal }: LoopOptions): Promise<void> {
  while (!signal.aborted) {
    try {
      await run(signal);
    } catch (error) {
      if (!signal.aborted) onError?.(error, name);
    }
    await delay(clock, everyMs, signal).catch(() => undefined);
  }
}
