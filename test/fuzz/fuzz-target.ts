/** A parser that faces a guest or a caller, and what must hold for it whatever bytes it gets. */
export interface FuzzTarget {
  /** Names the corpus file. */
  readonly name: string;
  /** Well-formed inputs to begin with. */
  readonly seeds: readonly (string | Uint8Array)[];
  /** Words with a meaning, as latin1 text. */
  readonly dictionary: readonly string[];
  /** Parses the input; throws where a promise is broken. A refusal by the parser's own error is no throw. */
  run(input: Buffer): void | Promise<void>;
}

/** Runs a parser; errors that `isRefusal` accepts are answers, all others are faults. */
export function refusing<T>(parse: () => T, isRefusal: (error: Error) => boolean): T | undefined {
  try {
    return parse();
  } catch (error) {
    if (error instanceof Error && isRefusal(error)) return undefined;
    throw error;
  }
}

/** Throws unless the promise holds. */
export function promise(holds: boolean, what: string): void {
  if (!holds) throw new BrokenPromise(what);
}

/** A parser did what it must not. */
export class BrokenPromise extends Error {
  override readonly name = "BrokenPromise";
}

/** Pieces of a byte string, cut at places that follow from its own content. */
export function pieces(input: Buffer): Buffer[] {
  const cut: Buffer[] = [];
  for (let at = 0; at < input.length; ) {
    const size = ((input[at] ?? 0) % 7) + 1;
    cut.push(input.subarray(at, at + size));
    at += size;
  }
  return cut;
}
