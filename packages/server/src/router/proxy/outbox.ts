/** Something that is ready to be written. */
export interface Departure {
  depart(): void;
}

/** So that the first of a long turn does not wait for all of them, and so that the other ends have work meanwhile. */
const waitingMax = 128;

/**
 * What becomes ready within one turn of the event loop leaves at its end, one write right after the other. A write wakes
 * the process at the other end, which costs more than the write itself; one that is still awake for the write before is
 * not woken again.
 */
export class Outbox {
  /** Bound: `waitingMax`; who comes then sends those before him off. */
  #waiting: Departure[] = [];
  #isArmed = false;
  readonly #onTurnEnd = (): void => {
    this.#isArmed = false;
    this.#flush();
  };

  /** Lets it depart before the event loop waits again, and not within this call. */
  post(departure: Departure): void {
    if (this.#waiting.length >= waitingMax) this.#flush();
    this.#waiting.push(departure);
    if (this.#isArmed) return;
    this.#isArmed = true;
    setImmediate(this.#onTurnEnd);
  }

  #flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const departure of waiting) departure.depart();
  }
}
