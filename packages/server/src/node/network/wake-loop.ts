import { ignore, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { type Client, type Clock, delay } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { Host } from "../host/host.ts";
import { HostError } from "../host/host-error.ts";
import { activityPatch, addressOf } from "./sandbox-addresses.ts";

/** How long one question to the host lasts. */
const waitMs = 60_000;

/** Pause after a failure. */
const pauseMs = 500;

/** A held connection is reset when its sandbox has not come up in this time. */
const holdMaxMs = 60_000;

/** The loop's parts. */
export interface WakeLoopOptions {
  readonly client: Client;
  readonly host: Host;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly sandboxes: () => readonly Sandbox[];
  /** Resolves when nothing is diverted any more from sandboxes that are awake. */
  readonly applyRules: () => Promise<void>;
  /** Tells the host anew what sleeps; one that came back has forgotten it. */
  readonly renewRules: () => Promise<void>;
  /** Whether the pod at an address is Ready, and is not about to go. */
  readonly isAwake: (address: string) => boolean;
  readonly signal: AbortSignal;
}

/** Wakes sandboxes that somebody connects to, and hands the waiting connections over once they are up. */
export class WakeLoop {
  readonly #options: WakeLoopOptions;
  /** Since when connections wait, by the address they are for. */
  readonly #waking = new Map<string, number>();

  constructor(options: WakeLoopOptions) {
    this.#options = options;
  }

  /** Resolves when the signal is aborted. */
  async run(): Promise<void> {
    const { host, clock, logger, signal } = this.#options;
    let seen = 0;
    let isLost = false;
    while (!signal.aborted) {
      try {
        if (isLost) await this.#options.renewRules();
        isLost = false;
        const { connections, count } = await host.waitHeld({ waitMs: this.#waitMs(), after: seen }, signal);
        for (const address of new Set(connections.map((connection) => connection.address))) await this.#wake(address);
        await this.settle();
        // Last: what failed is asked for and told again.
        seen = count;
      } catch (error) {
        if (signal.aborted) return;
        isLost = error instanceof HostError;
        logger.warn({ err: error }, "waiting for held connections failed; it is tried again");
        await delay(clock, pauseMs, signal).catch(() => undefined);
      }
    }
  }

  /** Hands over what waits for sandboxes that are awake; to be called whenever one may have become so. */
  async settle(): Promise<void> {
    const { host, clock, isAwake, applyRules, signal } = this.#options;
    for (const [address, sinceMs] of this.#waking) {
      const isUp = isAwake(address);
      if (!isUp && clock.nowMs() - sinceMs < holdMaxMs) continue;
      // Before the verb: a connection that arrives while it runs starts anew.
      this.#waking.delete(address);
      try {
        // The host connects to the sandbox as anybody on this machine does, so that its own connection must not be diverted.
        if (isUp) await applyRules();
        await (isUp ? host.handOver({ address }, signal) : host.dropHeld({ address }, signal));
      } catch (error) {
        this.#waking.set(address, sinceMs);
        throw error;
      }
    }
  }

  /** As `settle`, for who cannot wait: the loop does again what failed. */
  nudge(): void {
    if (this.#waking.size > 0)
      this.settle().catch((error: unknown) => {
        if (!this.#options.signal.aborted)
          this.#options.logger.warn({ err: error }, "held connections could not be handed over; it is tried again");
      });
  }

  #waitMs(): number {
    const nowMs = this.#options.clock.nowMs();
    const ends = [...this.#waking.values()].map((sinceMs) => sinceMs + holdMaxMs - nowMs);
    return Math.max(pauseMs, Math.min(waitMs, ...ends));
  }

  async #wake(address: string): Promise<void> {
    const { clock, isAwake } = this.#options;
    if (this.#waking.has(address)) return;
    if (!isAwake(address)) await this.#reportActivity(address);
    this.#waking.set(address, clock.nowMs());
  }

  async #reportActivity(address: string): Promise<void> {
    const { client, clock, sandboxes: list, signal } = this.#options;
    const sandbox = list().find((candidate) => addressOf(candidate) === address);
    if (sandbox === undefined) return;
    const { namespace = "", name } = sandbox.metadata;
    const body = activityPatch(clock.nowMs());
    await client.patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal }).catch(ignore("NotFound"));
  }
}
