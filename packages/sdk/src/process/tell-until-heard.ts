import { isSandboxError } from "../sandbox-error.ts";
import { pauseFor } from "./pause.ts";

/** Longer than a router takes to start again, short enough for somebody who has given up to wait for it. */
const limitMs = 5_000;
const pauseFirstMs = 50;

/**
 * Repeats what may be said twice until the sandbox has heard it, for five seconds at most. Never rejects: whoever gave up a
 * call gets that call's own reason, and that the sandbox could not be told is the connection's failure.
 */
export async function tellUntilHeard(tell: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
  const signal = AbortSignal.timeout(limitMs);
  for (let pauseMs = pauseFirstMs; !signal.aborted; pauseMs *= 2) {
    try {
      await tell(signal);
      return;
    } catch (error) {
      if (!isSandboxError(error, "connection-lost") && !isSandboxError(error, "unavailable")) return;
    }
    await pauseFor(pauseMs, signal).catch(() => undefined);
  }
}
