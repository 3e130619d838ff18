import { type Amounts, add, subtract } from "./pod-requests.ts";

/**
 * What the Pods on each node take, kept as a sum: a node of ten thousand Pods costs a decision as much as an empty one.
 * Bound: one entry per Pod that holds a place.
 */
export class NodeLedger {
  readonly #places = new Map<string, { readonly nodeName: string; readonly requests: Amounts }>();
  readonly #taken = new Map<string, Amounts>();

  /** Books a Pod's place; what was booked under its uid before is replaced. */
  book(uid: string, nodeName: string, requests: Amounts): void {
    const present = this.#places.get(uid);
    if (present?.nodeName === nodeName && present.requests === requests) return;
    this.free(uid);
    this.#places.set(uid, { nodeName, requests });
    const taken = this.#taken.get(nodeName) ?? new Map();
    add(taken, requests);
    this.#taken.set(nodeName, taken);
  }

  /** Gives a Pod's place back, if it has one. */
  free(uid: string): void {
    const place = this.#places.get(uid);
    if (place === undefined) return;
    this.#places.delete(uid);
    subtract(this.#taken.get(place.nodeName) ?? new Map(), place.requests);
  }

  /** The sum over a node's Pods. */
  taken(nodeName: string): Amounts {
    return this.#taken.get(nodeName) ?? new Map();
  }
}
