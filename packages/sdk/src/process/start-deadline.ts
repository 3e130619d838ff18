import { SandboxError } from "../errors/sandbox-error.ts";

/** A limit on the time until something has begun; it does not limit what follows. */
export interface StartDeadline {
  /** Aborts with the caller's reason, or with `request-timeout` when the time is up, or when cancelled. */
  readonly signal: AbortSignal;
  /** It has begun: from here on only the caller's signal counts. */
  readonly met: () => void;
  /** Ends everything that uses the signal. */
  readonly cancel: () => void;
}

/** Starts the clock. */
export function startDeadline(timeoutMs: number, signal: AbortSignal | undefined): StartDeadline {
  const controller = new AbortController();
  const timer = setTimeout(() => {
    controller.abort(new SandboxError("request-timeout", `no answer within ${timeoutMs} ms`));
  }, timeoutMs);
  const met = (): void => clearTimeout(timer);
  const cancel = (): void => {
    met();
    controller.abort(new SandboxError("closed", "the handle was closed"));
  };
  signal?.addEventListener("abort", met, { once: true });
  const all = signal === undefined ? controller.signal : AbortSignal.any([signal, controller.signal]);
  return { signal: all, met, cancel };
}
