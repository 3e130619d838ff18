import type { Clock, Disposer } from "./clock.ts";
import { requestPriorityDefault, type Transport } from "./transport.ts";

/** How to order requests. */
export interface PriorityOptions {
  /** Background requests under way at most while urgent ones are: enough that nothing starves. */
  readonly backgroundMax: number;
  /** The same while there are none: an urgent one that comes then meets no more than this. */
  readonly backgroundQuietMax: number;
  readonly clock: Clock;
}

/** Urgent requests come in chains, each waiting for the answer to the last: this long after one, the next may follow. */
const quietMs = 25;

/**
 * A transport that lets urgent requests go first. A server that is short of processor time shares it among all requests
 * it has; background requests are therefore held back here while urgent ones are under way.
 * Bound: one entry per caller that waits, and callers wait for their answers.
 */
export function prioritized(transport: Transport, options: PriorityOptions): Transport {
  const lane = new BackgroundLane(options);
  return {
    request: async (request) => {
      const { priority = requestPriorityDefault } = request;
      if (priority === "stream") return transport.request(request);
      using _place = priority === "urgent" ? lane.urgent() : await lane.background(request.signal);
      return await transport.request(request);
    },
    upgrade: (request) => transport.upgrade(request),
    close: () => transport.close(),
  };
}

class BackgroundLane {
  readonly #options: PriorityOptions;
  readonly #waiting = new Set<() => void>();
  #urgent = 0;
  #background = 0;
  #disposeQuiet: Disposer | undefined;

  constructor(options: PriorityOptions) {
    this.#options = options;
  }

  urgent(): Disposable {
    this.#urgent += 1;
    this.#disposeQuiet?.();
    this.#disposeQuiet = undefined;
    return {
      [Symbol.dispose]: () => {
        this.#urgent -= 1;
        if (this.#urgent > 0) return;
        this.#disposeQuiet = this.#options.clock.setTimer(quietMs, () => {
          this.#disposeQuiet = undefined;
          this.#admit();
        });
      },
    };
  }

  async background(signal: AbortSignal | undefined): Promise<Disposable> {
    if (!this.#hasRoom()) await this.#turn(signal);
    else this.#background += 1;
    return {
      [Symbol.dispose]: () => {
        this.#background -= 1;
        this.#admit();
      },
    };
  }

  #hasRoom(): boolean {
    const { backgroundMax, backgroundQuietMax } = this.#options;
    const isQuiet = this.#urgent === 0 && this.#disposeQuiet === undefined;
    return this.#background < (isQuiet ? backgroundQuietMax : backgroundMax);
  }

  #admit(): void {
    for (const go of this.#waiting) {
      if (!this.#hasRoom()) return;
      go();
    }
  }

  /** Resolves with a place taken; rejects with the signal's reason. */
  #turn(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiting.delete(go);
        signal?.removeEventListener("abort", onAbort);
      };
      const go = (): void => {
        leave();
        this.#background += 1;
        resolve();
      };
      const onAbort = (): void => {
        leave();
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#waiting.add(go);
    });
  }
}
