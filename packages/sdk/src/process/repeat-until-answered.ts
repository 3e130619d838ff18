import { isSandboxError } from "../errors/sandbox-error.ts";
import { pauseFor } from "../timing/pause.ts";

/** A router starts again within some two seconds; a caller that gave up waits no longer than this. */
const limitMs = 5_000;
const pauseFirstMs = 50;

/**
 * Repeats a call that is safe to repeat until the sandbox has answered it, for five seconds at most. Never rejects: the call
 * that was given up rejects with its own reason, and an unreachable sandbox is the connection's failure.
 */
export async function repeatUntilAnswered(call: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
  const signal = AbortSignal.timeout(limitMs);
  for (let pauseMs = pauseFirstMs; !signal.aborted; pauseMs *= 2) {
    try {
      await call(signal);
      return;
    } catch (error) {
      if (!isSandboxError(error, "connection-lost") && !isSandboxError(error, "unavailable")) return;
    }
    await pauseFor(pauseMs, signal).catch(() => undefined);
  }
}
