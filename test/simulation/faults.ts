import type { KubeObject, Resource } from "@agent-sandbox/api";
import {
  type FaultRates,
  FaultyTransport,
  type KubeRequest,
  type KubeResponse,
  type Transport,
} from "@agent-sandbox/kube";
import { type Coverage, crashTargets, rareActions } from "./coverage.ts";
import { CrashTransport } from "./crash-transport.ts";
import type { Ground } from "./ground.ts";
import { actionOf } from "./logging-transport.ts";

/** What the faults of one seed need. */
export interface FaultsOptions {
  readonly random: () => number;
  readonly ground: Ground;
  readonly coverage: Coverage;
  /** Told the UID of each object that was taken away. */
  readonly onVanish: (uid: string) => void;
}

/** How much likelier a fault is where it can strike seldom. */
const rareFactor = 4;

/** The faults of one seed: on during a burst, off while the world comes to rest. */
export class Faults {
  readonly #options: FaultsOptions;
  #rates: FaultRates = {};
  #rareRates: FaultRates = {};
  #vanishRate = 0;
  #crash: CrashTransport | undefined;

  constructor(options: FaultsOptions) {
    this.#options = options;
  }

  /** The controllers' way to the server, for one term. */
  wrap(transport: Transport): Transport {
    const { coverage, random, ground } = this.#options;
    this.#crash = new CrashTransport(this.#vanishing(transport), (request) => coverage.add("crash", actionOf(request)));
    return new FaultyTransport({
      transport: this.#crash,
      random,
      clock: ground.clock,
      rates: (request) => (isRare(request) ? this.#rareRates : this.#rates),
      delayMaxMs: 2_000,
      onFault: (fault, request) => coverage.add(fault, actionOf(request)),
    });
  }

  begin(): void {
    const { random } = this.#options;
    const some = (rate: number): number => (random() < 0.5 ? rate : 0);
    this.#rates = {
      conflict: some(0.15),
      gone: some(0.15),
      serverError: some(0.15),
      lostRequest: some(0.1),
      lostAnswer: some(0.15),
      watchBreak: some(0.13),
      eventDoubled: some(0.2),
      eventDelayed: some(0.2),
      eventDropped: some(0.08),
    };
    this.#rareRates = Object.fromEntries(
      Object.entries(this.#rates).map(([fault, rate]) => [fault, Math.min(0.4, (rate ?? 0) * rareFactor)]),
    );
    this.#vanishRate = some(0.1);
  }

  end(): void {
    this.#rates = {};
    this.#rareRates = {};
    this.#vanishRate = 0;
    if (this.#crash !== undefined && !this.#crash.isDead) this.#crash.plan = undefined;
  }

  /** The process dies after so many writes, or with the first one of a rare kind; gives that kind. */
  planCrash(afterWrites: number): string | undefined {
    if (this.#crash === undefined || this.#crash.plan !== undefined) return undefined;
    const { random } = this.#options;
    const action = random() < 0.75 ? crashTargets[Math.floor(random() * crashTargets.length)] : undefined;
    this.#crash.plan =
      action === undefined ? { at: () => --afterWrites <= 0 } : { at: (request) => actionOf(request) === action };
    return action;
  }

  get crashed(): boolean {
    return this.#crash?.isDead ?? false;
  }

  forgetCrash(): void {
    this.#crash = undefined;
  }

  /** Takes objects away in the instant before a write to them arrives: the server's 404 is a true one. */
  #vanishing(transport: Transport): Transport {
    const request = async (original: KubeRequest): Promise<KubeResponse> => {
      const { method } = original;
      const isWrite = method === "PATCH" || method === "DELETE";
      const rate = isRare(original) ? this.#vanishRate * rareFactor : this.#vanishRate;
      if (isWrite && rate > 0 && this.#options.random() < rate) await this.#vanish(original);
      const response = await transport.request(original);
      if (isWrite && response.status === 404) this.#options.coverage.add("notFound", actionOf(original));
      return response;
    };
    return { request, upgrade: (original) => transport.upgrade(original), close: () => transport.close() };
  }

  async #vanish(request: KubeRequest): Promise<void> {
    const [, group = "", resource = "", name = ""] =
      /^\/apis?\/(?:([^/]+)\/)?v[^/]+\/namespaces\/[^/]+\/([^/?]+)\/([^/?]+)/.exec(request.path) ?? [];
    // A policy and its template may go only while no Pod needs them, and their controller alone knows when that is.
    if (resource === "sandboxtemplates" || (resource === "networkpolicies" && request.method !== "DELETE")) return;
    const { ground, onVanish } = this.#options;
    const kind = { group, resource } as Resource<KubeObject>;
    const found = ground.read(kind).find(({ metadata }) => metadata.name === name);
    if (found === undefined || (found.metadata.finalizers ?? []).length > 0) return;
    onVanish(found.metadata.uid ?? "");
    await ground.write(kind, found, "delete");
  }
}

function isRare(request: KubeRequest): boolean {
  return rareActions.has(actionOf(request));
}
