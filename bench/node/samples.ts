/** Latencies in milliseconds. */
export class Samples {
  readonly #all: number[] = [];

  async time<T>(work: () => Promise<T>): Promise<T> {
    const startMs = performance.now();
    const result = await work();
    this.#all.push(performance.now() - startMs);
    return result;
  }

  at(share: number): number {
    const sorted = this.#all.toSorted((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  }
}
