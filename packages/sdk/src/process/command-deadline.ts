import type { ProcessEvent } from "./event-stream.ts";

/** The sandbox kills a command whose time is up by itself; its exit is not waited for longer than this. */
const graceMs = 2_000;

/**
 * The events of a command with a time limit. Where the sandbox does not report the exit in time, the command is taken for killed:
 * a sandbox that hangs or cannot be reached must not hold its caller. Only the wait for an event counts, so that a reader may take as long as it
 * likes.
 */
export async function* withinCommandTime(
  events: AsyncGenerator<ProcessEvent>,
  { commandTimeoutMs, giveUp }: { readonly commandTimeoutMs: number; readonly giveUp: () => void },
): AsyncGenerator<ProcessEvent> {
  let endMs = Number.POSITIVE_INFINITY;
  for (;;) {
    const waitMs = Math.max(endMs + graceMs - Date.now(), graceMs);
    const next = await nextWithin(events, waitMs);
    if (next === "late") {
      giveUp();
      return yield { kind: "exit", exit: { code: 137, signal: "SIGKILL", timedOut: true } };
    }
    if (next.done === true) return;
    if (next.value.kind === "started") endMs = Date.now() + commandTimeoutMs;
    yield next.value;
  }
}

/** Timers count to 2^31 milliseconds and fire at once beyond. */
const timerMsMax = 2 ** 31 - 1;

async function nextWithin(
  events: AsyncGenerator<ProcessEvent>,
  waitMs: number,
): Promise<IteratorResult<ProcessEvent> | "late"> {
  const next = events.next();
  if (waitMs > timerMsMax) return next;
  const { promise: late, resolve } = Promise.withResolvers<"late">();
  const timer = setTimeout(() => resolve("late"), waitMs);
  // What is given up rejects later, when it is no longer awaited.
  next.catch(() => undefined);
  try {
    return await Promise.race([next, late]);
  } finally {
    clearTimeout(timer);
  }
}
