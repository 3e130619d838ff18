/** A range of IPv4 addresses out of which single ones are lent. */
export interface AddressRange {
  /** The first address that may be lent, as a number. */
  readonly first: number;
  /** The last one. */
  readonly last: number;
}

/** How long an address stays taken for an object that was admitted but never stored, because a later rule refused it. */
const reservationMs = 60_000;

/**
 * Who has which address. Invariant: an address never has two owners.
 * Bound: one entry per address of the range.
 */
export class AddressPool {
  readonly #range: AddressRange;
  /** Owner by address; a reservation is an owner with an end. */
  readonly #owners = new Map<number, { owner: string; endsAtMs: number }>();
  /** Addresses that are kept for an owner who does not exist at present. */
  readonly #kept = new Map<string, number>();
  readonly #keptFor = new Map<number, string>();
  #cursor: number;

  constructor(range: AddressRange) {
    this.#range = range;
    this.#cursor = range.first;
  }

  /**
   * Lends the next free address, or undefined when all are taken. It goes round the range, so that an address just given
   * back stays unused for as long as possible: a client that still has it does not reach another sandbox.
   */
  reserve(owner: string, nowMs: number): string | undefined {
    const kept = this.#kept.get(owner);
    if (kept !== undefined && this.#isFree(kept, owner, nowMs)) {
      this.#owners.set(kept, { owner, endsAtMs: nowMs + reservationMs });
      return formatAddress(kept);
    }
    const size = this.#range.last - this.#range.first + 1;
    for (let step = 0; step < size; step++) {
      const candidate = this.#range.first + ((this.#cursor - this.#range.first + step) % size);
      if (!this.#isFree(candidate, owner, nowMs)) continue;
      this.#owners.set(candidate, { owner, endsAtMs: nowMs + reservationMs });
      this.#cursor = candidate + 1;
      return formatAddress(candidate);
    }
    return undefined;
  }

  /** Takes exactly this address; false when another owner has it or it is outside the range. */
  reserveExactly(address: string, owner: string, nowMs: number): boolean {
    const number = tryParseAddress(address);
    if (number === undefined || number < this.#range.first || number > this.#range.last) return false;
    // Its own address stays as firmly taken as it was: an update that changes nothing is never confirmed again.
    if (!this.#isFree(number, owner, nowMs)) return this.#owners.get(number)?.owner === owner;
    this.#owners.set(number, { owner, endsAtMs: nowMs + reservationMs });
    return true;
  }

  /** A stored object has the address: it stays taken until released. */
  confirm(address: string, owner: string): void {
    const number = tryParseAddress(address);
    if (number !== undefined) this.#owners.set(number, { owner, endsAtMs: Number.POSITIVE_INFINITY });
  }

  /** The owner is gone. Another owner's address is left alone. */
  release(address: string, owner: string): void {
    const number = tryParseAddress(address);
    if (number !== undefined && this.#owners.get(number)?.owner === owner) this.#owners.delete(number);
  }

  /** Keeps an address of the range for an owner, whatever becomes of him; one address for each. */
  keep(address: string, owner: string): void {
    const number = tryParseAddress(address);
    if (number === undefined || number < this.#range.first || number > this.#range.last) return;
    this.unkeep(owner);
    this.#kept.set(owner, number);
    this.#keptFor.set(number, owner);
  }

  /** Nothing is kept for an owner any more. */
  unkeep(owner: string): void {
    const number = this.#kept.get(owner);
    if (number !== undefined && this.#keptFor.get(number) === owner) this.#keptFor.delete(number);
    this.#kept.delete(owner);
  }

  #isFree(address: number, owner: string, nowMs: number): boolean {
    const keptFor = this.#keptFor.get(address);
    if (keptFor !== undefined && keptFor !== owner) return false;
    const held = this.#owners.get(address);
    return held === undefined || held.endsAtMs <= nowMs;
  }
}

/** The dotted form of an address. Exported for tests. */
export function formatAddress(address: number): string {
  return [24, 16, 8, 0].map((shift) => (address >>> shift) & 0xff).join(".");
}

/** The number of a dotted address, or undefined. Exported for tests. */
export function tryParseAddress(text: string): number | undefined {
  const parts = text.split(".").map(Number);
  if (parts.length !== 4 || parts.some((part) => !Number.isInteger(part) || part < 0 || part > 255)) return undefined;
  return parts.reduce((sum, part) => sum * 256 + part, 0);
}

/**
 * How an engine's /16 is divided: the first /24 is for gateways and resolvers, then come Sandboxes, then a /20 for Services; the
 * last /20 is the node's own, for Pods without a Sandbox.
 */
export interface AddressPlan {
  readonly sandboxes: AddressRange;
  readonly services: AddressRange;
}

/** Divides a /16 given as `10.200.0.0/16`. */
export function parseAddressPlan(cidr: string): AddressPlan {
  const base = tryParseAddress(cidr.replace(/\/16$/, ""));
  if (base === undefined || !cidr.endsWith("/16") || base % 65_536 !== 0)
    throw new SyntaxError(`"${cidr}" is not a /16 such as 10.200.0.0/16`);
  return {
    sandboxes: { first: base + 0x0100, last: base + 0xdfff },
    services: { first: base + 0xe001, last: base + 0xeffe },
  };
}
