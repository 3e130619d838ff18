/** Counts the commands and tunnels that are open to each pod, by `namespace/name`. */
export class OpenStreams {
  /** Bound: pods of this node that had a stream, and streams that outlive theirs. */
  readonly #uses = new Map<string, { open: number; endedMs: number; isForgotten: boolean }>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Counts one; call the result once when it ends. */
  begin(pod: string): () => void {
    const use = this.#uses.get(pod) ?? { open: 0, endedMs: 0, isForgotten: false };
    use.open += 1;
    use.isForgotten = false;
    this.#uses.set(pod, use);
    return () => {
      use.open -= 1;
      use.endedMs = this.#nowMs();
      if (use.open === 0 && use.isForgotten) this.#uses.delete(pod);
    };
  }

  /** Whether one is open, and when the last one ended; 0 where there was none. */
  of(pod: string): { readonly isOpen: boolean; readonly endedMs: number } {
    const { open, endedMs } = this.#uses.get(pod) ?? { open: 0, endedMs: 0 };
    return { isOpen: open > 0, endedMs };
  }

  /** Drops what is known of a pod that is not there any more, as soon as its last stream has ended. */
  forget(pod: string): void {
    const use = this.#uses.get(pod);
    if (use?.open === 0) this.#uses.delete(pod);
    else if (use !== undefined) use.isForgotten = true;
  }
}
