import type { Host } from "../host/host.ts";
import { HostError } from "../host/host-error.ts";
import type { RuleSet } from "../host/ruleset.ts";
import { planRuleChange } from "./plan-rule-change.ts";

/** Rules in force, by the name that the host knows them by. */
interface Applied {
  readonly rules: RuleSet;
  readonly revision: string;
}

/**
 * Keeps the kernel's rules equal to what the sources say; one transaction at a time, the newest state wins. The host is sent what differs from the
 * last rules that it confirmed, and everything where there is doubt: at first, after a failure, and when it does not know those rules.
 */
export class RuleKeeper {
  readonly #host: Host;
  readonly #compile: () => RuleSet;
  readonly #newRevision: () => string;
  #applied: Applied | undefined;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(parts: { readonly host: Host; readonly compile: () => RuleSet; readonly newRevision: () => string }) {
    this.#host = parts.host;
    this.#compile = parts.compile;
    this.#newRevision = parts.newRevision;
  }

  /** Resolves when rules that include everything known at the call are in force; rejects with the host's error. */
  apply(): Promise<void> {
    if (this.#running === undefined) {
      this.#running = this.#once().finally(() => {
        this.#running = undefined;
      });
      return this.#running;
    }
    // Calls during a transaction share the one after it.
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
    const applied = this.#applied;
    const change = applied === undefined ? undefined : planRuleChange(applied.rules, rules);
    if (applied !== undefined && change === undefined) return;
    this.#applied = undefined;
    const revision = this.#newRevision();
    if (applied === undefined || change === undefined) await this.#host.applyRules({ ...rules, revision });
    else
      await this.#host
        .changeRules({ ...change, base: applied.revision, revision })
        .catch((error: unknown) => this.#applyAll(error, { rules, revision }));
    this.#applied = { rules, revision };
  }

  /** A helper that came back meanwhile knows nothing that a change could build on. */
  #applyAll(error: unknown, { rules, revision }: Applied): Promise<void> {
    if (!(error instanceof HostError) || error.code !== "not-found") throw error;
    return this.#host.applyRules({ ...rules, revision });
  }
}
