import type { Clock } from "@agent-sandbox/kube";
import { askResolver } from "./ask-resolver.ts";
import { DnsCache } from "./dns-cache.ts";
import { answerFor, type DnsQuestion, questionKey, rcode, rcodeOf } from "./dns-message.ts";

/** Where to forward to. */
export interface DnsForwarderOptions {
  /** `address` or `address:port`, asked in order. */
  readonly resolvers: readonly string[];
  readonly clock: Clock;
}

/** Asks the machine's resolvers and remembers what they say. */
export class DnsForwarder {
  readonly #options: DnsForwarderOptions;
  readonly #cache = new DnsCache();
  /**
   * Questions under way, shared by all who ask the same: a resolver is asked once, and a forger has one number to guess instead
   * of one of many. Bound: the questions that `DnsServer` lets in.
   */
  readonly #asking = new Map<string, Promise<Buffer | undefined>>();

  constructor(options: DnsForwarderOptions) {
    this.#options = options;
  }

  /** Bytes of kept answers. */
  get cacheBytes(): number {
    return this.#cache.bytes;
  }

  /** What is kept for a tenant, made out to the asker; undefined where a resolver has to be asked. */
  cached(question: DnsQuestion, tenant: string): Buffer | undefined {
    const kept = this.#cache.get(tenant, question, this.#options.clock.nowMs());
    return kept === undefined ? undefined : answerFor(question, kept);
  }

  /** The resolvers' answer, made out to the asker; undefined when no resolver answers. */
  async resolve(question: DnsQuestion, tenant: string): Promise<Buffer | undefined> {
    const key = questionKey(question);
    let asking = this.#asking.get(key);
    if (asking === undefined) {
      asking = this.#ask(question).finally(() => this.#asking.delete(key));
      this.#asking.set(key, asking);
    }
    const answer = await asking;
    if (answer === undefined) return undefined;
    this.#cache.keep(tenant, question, answer, this.#options.clock.nowMs());
    return answerFor(question, answer);
  }

  /** The first answer that says something about the name; a resolver that only failed leaves it to the next. */
  async #ask(question: DnsQuestion): Promise<Buffer | undefined> {
    let failure: Buffer | undefined;
    for (const resolver of this.#options.resolvers) {
      const answer = await askResolver(resolver, question).catch(() => undefined);
      if (answer === undefined) continue;
      const code = rcodeOf(answer);
      if (code === rcode.noError || code === rcode.noSuchName) return answer;
      failure ??= answer;
    }
    return failure;
  }
}
