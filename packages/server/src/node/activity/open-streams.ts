/** Ends one command or tunnel, with the reason that its caller reads. */
export type StreamCutter = (why: string) => void;

interface Use {
  readonly open: Set<StreamCutter>;
  endedMs: number;
  isForgotten: boolean;
}

/** Knows the commands and tunnels that are open to each pod, by `namespace/name`. */
export class OpenStreams {
  /** Bound: pods of this node that had a stream, and streams that outlive theirs. */
  readonly #uses = new Map<string, Use>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Counts one; call the result once when it ends. */
  begin(pod: string, cut: StreamCutter): () => void {
    const use = this.#uses.get(pod) ?? { open: new Set(), endedMs: 0, isForgotten: false };
    use.open.add(cut);
    use.isForgotten = false;
    this.#uses.set(pod, use);
    return () => {
      use.open.delete(cut);
      use.endedMs = this.#nowMs();
      if (use.open.size === 0 && use.isForgotten) this.#uses.delete(pod);
    };
  }

  /** Ends all that are open to a pod. */
  cut(pod: string, why: string): void {
    for (const cut of this.#uses.get(pod)?.open ?? []) cut(why);
  }

  /** Whether one is open, and when the last one ended; 0 where there was none. */
  of(pod: string): { readonly isOpen: boolean; readonly endedMs: number } {
    const { open, endedMs } = this.#uses.get(pod) ?? { open: undefined, endedMs: 0 };
    return { isOpen: open !== undefined && open.size > 0, endedMs };
  }

  /** Drops what is known of a pod that is not there any more, as soon as its last stream has ended. */
  forget(pod: string): void {
    const use = this.#uses.get(pod);
    if (use?.open.size === 0) this.#uses.delete(pod);
    else if (use !== undefined) use.isForgotten = true;
  }
}
