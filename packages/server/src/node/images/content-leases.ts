/** Blobs that a pull or a load under way is about to refer to. Garbage collection leaves them alone. */
export class ContentLeases {
  readonly #counts = new Map<string, number>();

  /** Takes a lease that begins empty; dispose it once the image has its name, or has failed. */
  open(): ContentLease {
    return new ContentLease(this.#counts);
  }

  has(digest: string): boolean {
    return this.#counts.has(digest);
  }
}

/** One holder's blobs. */
export class ContentLease implements Disposable {
  readonly #counts: Map<string, number>;
  readonly #held = new Set<string>();

  constructor(counts: Map<string, number>) {
    this.#counts = counts;
  }

  /** Call before the blob is in the store: between the two it must not be taken for garbage. */
  add(digest: string): void {
    if (this.#held.has(digest)) return;
    this.#held.add(digest);
    this.#counts.set(digest, (this.#counts.get(digest) ?? 0) + 1);
  }

  [Symbol.dispose](): void {
    for (const digest of this.#held) {
      const left = (this.#counts.get(digest) ?? 1) - 1;
      if (left > 0) this.#counts.set(digest, left);
      else this.#counts.delete(digest);
    }
    this.#held.clear();
  }
}
