import { RoutingError } from "./routing-error.ts";

/** How much one caller and one sandbox may have open at once; 0 means no limit. */
export interface ExchangeLimits {
  readonly perClientMax: number;
  readonly perSandboxMax: number;
}

/** Counts open exchanges and refuses those above the limits. */
export class ExchangeCounter {
  /** May be replaced at any time; what is open already stays. */
  limits: ExchangeLimits;
  readonly #open = new Map<string, number>();

  constructor(limits: ExchangeLimits) {
    this.limits = limits;
  }

  /** Takes a place for both; call the result once to give them back. Throws 429 where one is full. */
  enter(client: string, sandbox: string): () => void {
    this.#take(`client ${client}`, this.limits.perClientMax);
    try {
      this.#take(`sandbox ${sandbox}`, this.limits.perSandboxMax);
    } catch (error) {
      this.#give(`client ${client}`);
      throw error;
    }
    return () => {
      this.#give(`client ${client}`);
      this.#give(`sandbox ${sandbox}`);
    };
  }

  #take(key: string, max: number): void {
    const count = this.#open.get(key) ?? 0;
    if (max > 0 && count >= max)
      throw new RoutingError(429, `too many open requests for ${key}`, { retryAfterSeconds: 1 });
    this.#open.set(key, count + 1);
  }

  #give(key: string): void {
    const count = (this.#open.get(key) ?? 1) - 1;
    if (count === 0) this.#open.delete(key);
    else this.#open.set(key, count);
  }
}
