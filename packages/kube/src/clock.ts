/** Cancels what it was returned for; calling it again does nothing. */
export type Disposer = () => void;

/** Time as an argument: everything that waits or stamps takes one of these. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  nowMs(): number;
  /**
   * Calls `fire` once, `delayMs` from now, unless disposed before. Any finite delay is honoured, and `nowMs` has passed it by
   * then: a callback that reads the clock never reads a time before the one it waited for.
   */
  setTimer(delayMs: number, fire: () => void): Disposer;
}

/** The longest delay a platform timer takes; a greater one fires at once, so longer waits are cut in pieces. Exported for tests. */
export const timerMaxMs = 2 ** 31 - 1;

/** Platform timers count by another clock than `Date.now` and come up to a millisecond early by it; more than this is a clock that was set back. */
const earlyMaxMs = 10;

/** The machine's clock. Its timers do not keep the process alive. */
export const systemClock: Clock = { nowMs: Date.now, setTimer: setSystemTimer };

function setSystemTimer(delayMs: number, fire: () => void): Disposer {
  const dueMs = Date.now() + delayMs;
  let timer: NodeJS.Timeout;
  const arm = (): void => {
    const restMs = dueMs - Date.now();
    timer = restMs > timerMaxMs ? setTimeout(arm, timerMaxMs) : setTimeout(fireWhenDue, Math.max(0, restMs));
    timer.unref();
  };
  const fireWhenDue = (): void => {
    const restMs = dueMs - Date.now();
    if (restMs > 0 && restMs <= earlyMaxMs) arm();
    else fire();
  };
  arm();
  return () => clearTimeout(timer);
}

/** Resolves after `delayMs`; rejects with `signal.reason` when aborted first. */
export function delay(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const onAbort = (): void => {
      dispose();
      reject(signal.reason);
    };
    const dispose = clock.setTimer(delayMs, () => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    });
    signal.addEventListener("abort", onAbort, { once: true });
  });
}
