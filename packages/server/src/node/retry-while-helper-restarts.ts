import { type Clock, delay } from "@agent-sandbox/kube";
import { HostError } from "./host/host-error.ts";

/** Pause before a helper that is being restarted is asked again. */
const retryMs = 500;

/** Repeats `run` from its start while the helper answers nothing because it is being restarted; verbs are idempotent. Every other error is thrown on. */
export async function retryWhileHelperRestarts<T>(
  clock: Clock,
  run: () => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (signal.aborted || !(error instanceof HostError) || error.code !== "unavailable") throw error;
      await delay(clock, retryMs, signal);
    }
  }
}
