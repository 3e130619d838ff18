import { tooManyRequests } from "@agent-sandbox/api";

/** How much may be under way at once. */
export interface FlightLimits {
  /** Requests that read. */
  readonly readsMax: number;
  /** Requests that write. */
  readonly writesMax: number;
  /** Open watches and streams. */
  readonly streamsMax: number;
}

/** Kubernetes' own figures for requests; watches by what a small machine can hold open. */
export const defaultFlightLimits: FlightLimits = { readsMax: 400, writesMax: 400, streamsMax: 4_000 };

/** The kinds of work that are counted. */
export type FlightKind = "read" | "write" | "stream";

/** Counts what is under way and refuses the rest with 429. */
export class InFlight {
  readonly #limits: Readonly<Record<FlightKind, number>>;
  readonly #counts: Record<FlightKind, number> = { read: 0, write: 0, stream: 0 };

  constructor({ readsMax, writesMax, streamsMax }: FlightLimits) {
    this.#limits = { read: readsMax, write: writesMax, stream: streamsMax };
  }

  /** Takes a place until the result is disposed; throws TooManyRequests when there is none. */
  enter(kind: FlightKind): Disposable {
    if (this.#counts[kind] >= this.#limits[kind]) {
      throw tooManyRequests("The server has received too many requests and has asked us to try again later", 1);
    }
    return new Place(this.#counts, kind);
  }
}

/** One place taken; a class and not a closure, because every request makes one. */
class Place implements Disposable {
  readonly #counts: Record<FlightKind, number>;
  readonly #kind: FlightKind;
  #isIn = true;

  constructor(counts: Record<FlightKind, number>, kind: FlightKind) {
    this.#counts = counts;
    this.#kind = kind;
    counts[kind]++;
  }

  [Symbol.dispose](): void {
    if (this.#isIn) this.#counts[this.#kind]--;
    this.#isIn = false;
  }
}
