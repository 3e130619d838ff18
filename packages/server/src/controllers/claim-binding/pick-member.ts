/** How far a member is: `ready` can be used, `networked` has an address, `pending` has none yet. */
export type Readiness = "ready" | "networked" | "pending";

/** A member of a pool that no claim holds, as the choice between members sees it. */
export interface Candidate {
  /** `namespace/name` of its Sandbox. */
  readonly key: string;
  /** Its creation time; 0 when the Sandbox does not say. */
  readonly bornMs: number;
  /** The node it runs on; empty while it has none. */
  readonly node: string;
  readonly readiness: Readiness;
}

/**
 * The member a claim takes: Ready ones before those that only have an address, never one without. Among these the node
 * with the most of them, which spreads claims over nodes; then the oldest, then by name.
 */
export function pickMember(candidates: readonly Candidate[]): Candidate | undefined {
  return pickOf("ready", candidates) ?? pickOf("networked", candidates);
}

function pickOf(readiness: Readiness, candidates: readonly Candidate[]): Candidate | undefined {
  const perNode = new Map<string, number>();
  for (const { node, readiness: own } of candidates) {
    if (own === readiness && node !== "") perNode.set(node, (perNode.get(node) ?? 0) + 1);
  }
  const fullest = Math.max(0, ...perNode.values());
  let best: Candidate | undefined;
  for (const candidate of candidates) {
    if (candidate.readiness !== readiness || (perNode.get(candidate.node) ?? 0) < fullest) continue;
    if (best === undefined || isBefore(candidate, best)) best = candidate;
  }
  return best;
}

function isBefore(a: Candidate, b: Candidate): boolean {
  return a.bornMs < b.bornMs || (a.bornMs === b.bornMs && a.key < b.key);
}
