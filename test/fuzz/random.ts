import { seededRandom } from "../../packages/kube/src/testing/seeded-random.ts";

/** Choices that follow from a seed: the same seed gives the same inputs on every machine. */
export class SeededRandom {
  readonly #next: () => number;

  constructor(seed: number) {
    this.#next = seededRandom(seed);
  }

  /** A whole number from 0 to `limit` - 1; 0 where there is none. */
  below(limit: number): number {
    return Math.floor(this.#next() * limit);
  }

  /** One element; undefined of an empty list. */
  pick<T>(list: readonly T[]): T | undefined {
    return list[this.below(list.length)];
  }
}
