import type { Host } from "../host/host.ts";

/** Network slots kept ready so that a start does not wait for one; each costs a namespace and a veth pair. */
export const slotsAhead = 4;

/** Greatest slot number the host knows. */
const slotMax = 65_535;

/** Hands out network slots made ahead of need; a used slot is destroyed, never reused, so that nothing of its user stays. */
export class SlotPool {
  readonly #host: Host;
  readonly #free: number[] = [];
  readonly #used = new Set<number>();
  readonly #onError: (error: unknown) => void;
  #next = 0;
  #filling: Promise<void> | undefined;

  constructor({ host, onError }: { readonly host: Host; readonly onError: (error: unknown) => void }) {
    this.#host = host;
    this.#onError = onError;
  }

  /** Takes over what an earlier agent left: slots of pods stay theirs, the rest is free. */
  async load(used: readonly number[]): Promise<void> {
    for (const slot of used) this.#used.add(slot);
    for (const { slot, address } of await this.#host.listSlots()) {
      if (this.#used.has(slot)) continue;
      // A slot that has an address was somebody's.
      if (address === undefined) this.#free.push(slot);
      else await this.#host.releaseSlot({ slot });
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
        await this.#host.ensureSlot({ slot }, signal);
      } catch (error) {
        this.#used.delete(slot);
        throw error;
      }
    }
    this.fill();
    return slot;
  }

  async release(slot: number, signal?: AbortSignal): Promise<void> {
    await this.#host.releaseSlot({ slot }, signal);
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
    while (this.#free.length < slotsAhead) {
      const slot = this.#number();
      this.#used.add(slot);
      try {
        await this.#host.ensureSlot({ slot });
        this.#free.push(slot);
      } catch (error) {
        // A take makes its own slot and reports the failure on its pod.
        this.#onError(error);
        return;
      } finally {
        this.#used.delete(slot);
      }
    }
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
