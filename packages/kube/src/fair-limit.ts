/** How much one holder and all together may have at once. */
export interface FairLimitOptions {
  readonly perHolderMax: number;
  readonly totalMax: number;
  /** What a holder may have even where the others have taken the whole; default 1. */
  readonly guaranteed?: number;
}

/**
 * Counts what holders have taken of something limited. One holder cannot take it all, and several that together have taken
 * it all leave every other its guaranteed part.
 *
 * Bound: `totalMax` and the guaranteed part of each holder.
 */
export class FairLimit {
  readonly #options: FairLimitOptions;
  readonly #taken = new Map<string, number>();
  #total = 0;

  constructor(options: FairLimitOptions) {
    this.#options = options;
  }

  /** How much is taken in all. */
  get total(): number {
    return this.#total;
  }

  /** Takes one; false where the holder has its part already. */
  tryTake(holder: string): boolean {
    const { perHolderMax, totalMax, guaranteed = 1 } = this.#options;
    const own = this.#taken.get(holder) ?? 0;
    if (own >= perHolderMax || (this.#total >= totalMax && own >= guaranteed)) return false;
    this.#taken.set(holder, own + 1);
    this.#total += 1;
    return true;
  }

  /** Gives one back; once for each that was taken. */
  give(holder: string): void {
    const own = this.#taken.get(holder);
    if (own === undefined) return;
    if (own === 1) this.#taken.delete(holder);
    else this.#taken.set(holder, own - 1);
    this.#total -= 1;
  }
}
