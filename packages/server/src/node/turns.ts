/** Lets those that name one key work one after another. Bound: the keys that are being worked on. */
export class Turns {
  readonly #last = new Map<string, Promise<unknown>>();

  /** Resolves or rejects as the work does, which begins when all that came before it for this key has ended. */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve();
    const own = before.then(work);
    const settled = own.then(
      () => undefined,
      () => undefined,
    );
    this.#last.set(key, settled);
    try {
      return await own;
    } finally {
      if (this.#last.get(key) === settled) this.#last.delete(key);
    }
  }
}
