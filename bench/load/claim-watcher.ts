import { type SandboxClaim, sandboxClaims } from "@agent-sandbox/api";
import { type Client, Informer, systemClock } from "@agent-sandbox/kube";
import { aClaim } from "../../test/cluster/claim-objects.ts";

/** How long after its window the last claim may take. */
const readyMaxMs = 120_000;

/** How long the claims of one run took from their creation until a watching client saw them Ready. */
export class ClaimWatcher {
  readonly #client: Client;
  readonly #namespace: string;
  readonly #createdMs = new Map<string, number>();
  readonly #readyMs = new Map<string, number>();
  readonly #boundTo = new Map<string, string>();
  #missing = 0;
  #allReady: (() => void) | undefined;

  constructor(client: Client, namespace: string) {
    this.#client = client;
    this.#namespace = namespace;
  }

  /** Watches until the signal aborts. */
  run(signal: AbortSignal): Promise<void> {
    const { namespace } = { namespace: this.#namespace };
    const informer = new Informer({ client: this.#client, resource: sandboxClaims, namespace, clock: systemClock });
    const seen = (claim: SandboxClaim): void => this.#seen(claim);
    informer.addHandler({ onAdd: seen, onUpdate: (_old, claim) => seen(claim) });
    return informer.run(signal);
  }

  /** Creates a claim and notes the moment. */
  async create(name: string, pool: string): Promise<void> {
    this.#createdMs.set(name, performance.now());
    this.#missing += 1;
    const claim = aClaim(name, pool);
    await this.#client.create(sandboxClaims, { ...claim, metadata: { ...claim.metadata, namespace: this.#namespace } });
  }

  /** Resolves when every claim that was created is Ready, or after two minutes. */
  async allReady(): Promise<void> {
    if (this.#missing === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, readyMaxMs);
      this.#allReady = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Sorted, of those that became Ready. */
  latencies(names: readonly string[]): number[] {
    return names
      .map((name) => (this.#readyMs.get(name) ?? Number.NaN) - (this.#createdMs.get(name) ?? Number.NaN))
      .filter((each) => !Number.isNaN(each))
      .sort((a, b) => a - b);
  }

  /** How many different Sandboxes the claims have. */
  sandboxesOf(names: readonly string[]): number {
    return new Set(names.map((name) => this.#boundTo.get(name)).filter((name) => name !== undefined)).size;
  }

  #seen({ metadata: { name }, status }: SandboxClaim): void {
    const isReady = status?.conditions?.some((each) => each.type === "Ready" && each.status === "True");
    if (isReady !== true || this.#readyMs.has(name) || !this.#createdMs.has(name)) return;
    this.#readyMs.set(name, performance.now());
    this.#boundTo.set(name, status?.sandbox?.name ?? "");
    this.#missing -= 1;
    if (this.#missing === 0) this.#allReady?.();
  }
}

/** Percentiles of sorted latencies, in milliseconds. */
export interface Spread {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** The middle, the worst of a hundred and the worst. */
export function spreadOf(latencies: readonly number[]): Spread {
  const at = (share: number): number =>
    latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))] ?? Number.NaN;
  return { p50: at(0.5), p99: at(0.99), max: at(1) };
}
