import type { Clock } from "@agent-sandbox/kube";
import type { Host } from "../host/host.ts";
import { retryWhileHelperRestarts } from "../retry-while-helper-restarts.ts";

/** Network slots kept ready so that a start does not wait for one; each costs a namespace and a veth pair. Exported for tests. */
export const slotsAhead = 4;

/** Greatest slot number the host knows. */
const slotMax = 65_535;

/** What slots are made with. */
export interface SlotPoolOptions {
  readonly host: Host;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
  readonly signal: AbortSignal;
}

/** Hands out network slots made ahead of need; a used slot is destroyed, never reused, so that nothing of its user stays. */
export class SlotPool {
  readonly #options: SlotPoolOptions;
  readonly #free: number[] = [];
  readonly #used = new Set<number>();
  #next = 0;
  #filling: Promise<void> | undefined;

  constructor(options: SlotPoolOptions) {
    this.#options = options;
  }

  /** Takes over what an earlier agent left: slots of pods stay theirs, the rest is free. */
  async load(used: readonly number[]): Promise<void> {
    for (const slot of used) this.#used.add(slot);
    for (const { slot, address } of await this.#options.host.listSlots()) {
      if (this.#used.has(slot)) continue;
      // A slot that has an address was a pod's.
      if (address === undefined) this.#free.push(slot);
      else await this.#options.host.releaseSlot({ slot });
    }
    this.fill();
  }

  get used(): readonly number[] {
    return [...this.#used];
  }

  get free(): readonly number[] {
    return [...this.#free];
  }

  /** A slot that is the caller's until `release`. */
  async take(signal: AbortSignal): Promise<number> {
    const ready = this.#free.shift();
    const slot = ready ?? this.#number();
    this.#used.add(slot);
    if (ready === undefined) {
      try {
        await this.#options.host.ensureSlot({ slot }, signal);
      } catch (error) {
        this.#giveBack(slot);
        throw error;
      }
    }
    this.fill();
    return slot;
  }

  async release(slot: number, signal?: AbortSignal): Promise<void> {
    await this.#options.host.releaseSlot({ slot }, signal);
    this.#used.delete(slot);
  }

  /** Makes slots until enough are ready, in the background. */
  fill(): void {
    this.#filling ??= this.#make().finally(() => {
      this.#filling = undefined;
    });
  }

  /** Resolves when no slot is being made. */
  async idle(): Promise<void> {
    await this.#filling;
  }

  async #make(): Promise<void> {
    const { host, clock, onError, signal } = this.#options;
    while (this.#free.length < slotsAhead) {
      const slot = this.#number();
      this.#used.add(slot);
      try {
        await retryWhileHelperRestarts(clock, () => host.ensureSlot({ slot }), signal);
        this.#free.push(slot);
        this.#used.delete(slot);
      } catch (error) {
        this.#giveBack(slot);
        // A take makes its own slot and reports the failure on its pod.
        if (!signal.aborted) onError(error);
        return;
      }
    }
  }

  /** The host may have some of a slot that failed: the next one that is made has its number, and so completes it. */
  #giveBack(slot: number): void {
    this.#used.delete(slot);
    this.#next = slot;
  }

  #number(): number {
    for (let tries = 0; tries <= slotMax; tries++) {
      const slot = this.#next;
      this.#next = (this.#next + 1) % (slotMax + 1);
      if (!this.#used.has(slot) && !this.#free.includes(slot)) return slot;
    }
    throw new Error("bug: all network slots are in use");
  }
}
