/** Long enough that there are few chunks, short enough that an insertion moves little. */
const chunkMax = 512;

/** A set of keys in the order SQLite gives them. Bound: the number of keys in the store. */
export class SortedKeys {
  /** Never empty inside; each chunk is sorted and lies before the next. */
  readonly #chunks: string[][] = [];
  /** Nearly every store holds no key with a surrogate, and its keys compare by unit; with the first one that ends. */
  #compare: Compare = compareUnits;

  /** Adds a key that is not there. */
  add(key: string): void {
    this.#compare = this.#comparing(key);
    const chunk = this.#chunks[this.#chunkOf(key, this.#compare)] ?? this.#chunks.at(-1);
    if (chunk === undefined) {
      this.#chunks.push([key]);
      return;
    }
    chunk.splice(lowerBound(chunk, key, this.#compare), 0, key);
    if (chunk.length > chunkMax) {
      const half = chunk.splice(chunkMax / 2);
      this.#chunks.splice(this.#chunks.indexOf(chunk) + 1, 0, half);
    }
  }

  /** Removes a key that is there. */
  delete(key: string): void {
    const compare = this.#comparing(key);
    const at = this.#chunkOf(key, compare);
    const chunk = this.#chunks[at];
    if (chunk === undefined) return;
    const index = lowerBound(chunk, key, compare);
    if (chunk[index] !== key) return;
    chunk.splice(index, 1);
    if (chunk.length === 0) this.#chunks.splice(at, 1);
  }

  /** The keys that start with `prefix` and come after `afterKey`, in order. */
  *range(prefix: string, afterKey = ""): Generator<string> {
    const from = compareKeys(prefix, afterKey) > 0 ? prefix : afterKey;
    const compare = this.#comparing(from);
    for (let at = this.#chunkOf(from, compare); at < this.#chunks.length; at += 1) {
      const chunk = this.#chunks[at] as string[];
      for (let index = lowerBound(chunk, from, compare); index < chunk.length; index += 1) {
        const key = chunk[index] as string;
        if (!key.startsWith(prefix)) return;
        if (key !== afterKey) yield key;
      }
    }
  }

  /** The first chunk whose last key is not before `key`; the number of chunks where there is none. */
  #chunkOf(key: string, compare: Compare): number {
    let low = 0;
    let high = this.#chunks.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const last = this.#chunks[middle]?.at(-1) as string;
      if (compare(last, key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** How to compare `key` with those that are there. */
  #comparing(key: string): Compare {
    return this.#compare === compareUnits && surrogate.test(key) ? compareKeys : this.#compare;
  }
}

type Compare = (a: string, b: string) => number;

const surrogate = /[\ud800-\udfff]/;

function lowerBound(chunk: readonly string[], key: string, compare: Compare): number {
  let low = 0;
  let high = chunk.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compare(chunk[middle] as string, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * SQLite's order of keys, that is by code point. JavaScript compares code units, which differs only where a surrogate
 * meets a unit above the surrogates.
 */
export function compareKeys(a: string, b: string): number {
  if (a === b) return 0;
  if (!surrogate.test(a) && !surrogate.test(b)) return compareUnits(a, b);
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index += 1) {
    const unitA = a.charCodeAt(index);
    const unitB = b.charCodeAt(index);
    if (unitA !== unitB) return rank(unitA) - rank(unitB);
  }
  return a.length - b.length;
}

/** The same for keys without surrogates. */
function compareUnits(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

function rank(unit: number): number {
  return unit >= 0xd800 && unit <= 0xdfff ? unit + 0x10000 : unit;
}
