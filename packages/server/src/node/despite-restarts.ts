import { type Clock, delay } from "@agent-sandbox/kube";
import { HostError } from "./host/host-error.ts";

/** Pause before a helper that is being restarted is asked again. */
const retryMs = 500;

/** Does something to its end although the helper is restarted meanwhile: verbs are idempotent, so that it is done again from its start. */
export async function despiteRestarts<T>(clock: Clock, run: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (signal.aborted || !(error instanceof HostError) || error.code !== "unavailable") throw error;
      await delay(clock, retryMs, signal);
    }
  }
}
