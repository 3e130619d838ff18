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
  readonly #clients = new Map<string, number>();
  readonly #sandboxes = new Map<string, number>();

  constructor(limits: ExchangeLimits) {
    this.limits = limits;
  }

  /** Takes a place for both. Throws 429 where one is full. */
  enter(client: string, sandbox: string): void {
    take(this.#clients, client, this.limits.perClientMax, "client");
    try {
      take(this.#sandboxes, sandbox, this.limits.perSandboxMax, "sandbox");
    } catch (error) {
      give(this.#clients, client);
      throw error;
    }
  }

  /** Gives both places back; once for each time that they were taken. */
  leave(client: string, sandbox: string): void {
    give(this.#clients, client);
    give(this.#sandboxes, sandbox);
  }
}

function take(open: Map<string, number>, key: string, max: number, kind: string): void {
  const count = open.get(key) ?? 0;
  if (max > 0 && count >= max)
    throw new RoutingError(429, `too many open requests for ${kind} ${key}`, { retryAfterSeconds: 1 });
  open.set(key, count + 1);
}

function give(open: Map<string, number>, key: string): void {
  const count = (open.get(key) ?? 1) - 1;
  if (count === 0) open.delete(key);
  else open.set(key, count);
}
