/** Counts the commands and tunnels that are open to each pod, by `namespace/name`. */
export class OpenStreams {
  /** Bound: pods of this node that had a stream; an entry goes when its pod is forgotten. */
  readonly #uses = new Map<string, { open: number; endedMs: number }>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Counts one; call the result once when it ends. */
  begin(pod: string): () => void {
    const use = this.#uses.get(pod) ?? { open: 0, endedMs: 0 };
    use.open += 1;
    this.#uses.set(pod, use);
    return () => {
      use.open -= 1;
      use.endedMs = this.#nowMs();
    };
  }

  /** Whether one is open, and when the last one ended; 0 where there was none. */
  of(pod: string): { readonly isOpen: boolean; readonly endedMs: number } {
    const { open, endedMs } = this.#uses.get(pod) ?? { open: 0, endedMs: 0 };
    return { isOpen: open > 0, endedMs };
  }

  /** Drops what is known of pods that are not there any more. */
  keepOnly(isThere: (pod: string) => boolean): void {
    for (const [pod, { open }] of this.#uses) if (open === 0 && !isThere(pod)) this.#uses.delete(pod);
  }
}
