/** An IPv4 range in numbers. */
interface Range {
  readonly first: number;
  readonly size: number;
}

/**
 * Addresses for pods that belong to no Sandbox. Sandboxes get theirs from a stand-in, from the low end of the range;
 * these come from the high end, and never one that is known to be taken.
 */
export class AddressPool {
  readonly #range: Range;
  readonly #isTaken: (address: string) => boolean;
  readonly #own = new Set<string>();

  constructor({ cidr, isTaken }: { readonly cidr: string; readonly isTaken: (address: string) => boolean }) {
    this.#range = parseRange(cidr);
    this.#isTaken = isTaken;
  }

  /** Marks what an earlier agent gave away. */
  adopt(address: string): void {
    this.#own.add(address);
  }

  /** A free address; undefined when there is none left. */
  allocate(): string | undefined {
    const { first, size } = this.#range;
    // The last address is the broadcast address, the first two are the network and the gateway.
    for (let offset = size - 2; offset > 1; offset--) {
      const address = formatAddress(first + offset);
      if (this.#own.has(address) || this.#isTaken(address)) continue;
      this.#own.add(address);
      return address;
    }
    return undefined;
  }

  release(address: string): void {
    this.#own.delete(address);
  }
}

/** The first usable address of a range: every sandbox's next hop and resolver. */
export function gatewayOf(cidr: string): string {
  return formatAddress(parseRange(cidr).first + 1);
}

function parseRange(cidr: string): Range {
  const match = /^(\d+)\.(\d+)\.(\d+)\.(\d+)\/(\d+)$/.exec(cidr);
  if (match === null) throw new Error(`bug: ${JSON.stringify(cidr)} is not an IPv4 range`);
  const [a = 0, b = 0, c = 0, d = 0, bits = 32] = match.slice(1).map(Number);
  const size = 2 ** (32 - bits);
  const number = ((a * 256 + b) * 256 + c) * 256 + d;
  return { first: number - (number % size), size };
}

function formatAddress(number: number): string {
  return [number >>> 24, (number >>> 16) & 255, (number >>> 8) & 255, number & 255].join(".");
}
