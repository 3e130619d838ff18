/** When a failed connection attempt is made again. */
export interface RetryOptions {
  /** Attempts after the first. */
  readonly retriesMax: number;
  readonly initialDelayMs: number;
  readonly maxDelayMs: number;
  readonly onRetry?: (namespace: string) => void;
}

/** Repeats connection attempts: a program inside a sandbox may bind its port a moment later. */
export class RetryPolicy {
  readonly #options: RetryOptions;

  constructor(options: RetryOptions) {
    this.#options = options;
  }

  /** Rejects with the last attempt's error once attempts are used up or the caller is gone. */
  async run<T>(attempt: () => Promise<T>, isOver: () => boolean, namespace: string): Promise<T> {
    const { retriesMax, initialDelayMs, maxDelayMs, onRetry } = this.#options;
    for (let retries = 0; ; retries += 1) {
      try {
        return await attempt();
      } catch (error) {
        if (retries >= retriesMax || isOver()) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, Math.min(initialDelayMs * 2 ** retries, maxDelayMs)));
      onRetry?.(namespace);
    }
  }
}
