import { isDeepStrictEqual } from "node:util";
import type { Host } from "../host/host.ts";
import type { RuleSet } from "../host/ruleset.ts";

/** Keeps the kernel's rules equal to what the sources say; one transaction at a time, the newest state wins. */
export class RuleKeeper {
  readonly #host: Host;
  readonly #compile: () => RuleSet;
  #applied: RuleSet | undefined;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor({ host, compile }: { readonly host: Host; readonly compile: () => RuleSet }) {
    this.#host = host;
    this.#compile = compile;
  }

  /** Resolves when rules that include everything known at the call are in force; rejects with the host's error. */
  apply(): Promise<void> {
    if (this.#running === undefined) {
      this.#running = this.#once().finally(() => {
        this.#running = undefined;
      });
      return this.#running;
    }
    // Whoever asks during a transaction shares the one after it.
    this.#next ??= this.#running
      .catch(() => undefined)
      .then(() => {
        this.#next = undefined;
        return this.apply();
      });
    return this.#next;
  }

  /** As `apply`, although nothing may have changed: a helper that came back knows no sleeping addresses and holds no connections. */
  renew(): Promise<void> {
    this.#applied = undefined;
    return this.apply();
  }

  async #once(): Promise<void> {
    const rules = this.#compile();
    if (isDeepStrictEqual(rules, this.#applied)) return;
    this.#applied = undefined;
    await this.#host.applyRules(rules);
    this.#applied = rules;
  }
}
