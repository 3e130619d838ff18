import { ApiError, formatMicroTime, isReasonOf, type Lease, leases } from "@agent-sandbox/api";
import type { Client } from "./client.ts";
import { type Clock, delay } from "./clock.ts";

/** Who wants to lead, by which Lease. */
export interface LeaderElectionOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly namespace: string;
  /** The Lease's name. */
  readonly name: string;
  /** Must be unique among the candidates, for example host name and a random part. */
  readonly identity: string;
  /** Between 0 and 1; default `Math.random`. */
  readonly random?: () => number;
  /** After this long without renewal others may take over; default 15 s. */
  readonly leaseDurationMs?: number;
  /** The leader gives up when it could not renew for this long; default 10 s, always below the duration. */
  readonly renewDeadlineMs?: number;
  /** Between attempts to acquire or renew; default 2 s. */
  readonly retryPeriodMs?: number;
  /** What the leader does. Its signal aborts when leadership is lost or the candidate stops. */
  readonly lead: (signal: AbortSignal) => Promise<void>;
  /** A failed attempt; the candidate goes on. */
  readonly onError?: (error: unknown) => void;
  /** Ends the candidacy. */
  readonly signal: AbortSignal;
}

/** Thrown by the leader's signal when another may lead, or might. */
class LeadershipLost extends Error {
  override readonly name = "LeadershipLost";
}

/**
 * Stands for election until the signal aborts, and calls `lead` each time it wins. Releases the Lease when it stops, so
 * that a successor need not wait for it to run out.
 *
 * Invariant: `lead`'s signal aborts before another replica may hold the Lease, as long as clocks run at the same speed:
 * others count from when they *see* a renewal, the leader from before it *sent* one.
 */
export async function runLeaderElection(options: LeaderElectionOptions): Promise<void> {
  const { clock, random = Math.random, retryPeriodMs = 2_000, onError, signal } = options;
  const candidate = new Candidate(options);
  while (!signal.aborted) {
    try {
      if (await candidate.tryAcquire(signal)) await leadWhileHeld(candidate, options);
    } catch (error) {
      if (!signal.aborted) onError?.(error);
    }
    await delay(clock, retryPeriodMs * (1 + 0.2 * random()), signal).catch(() => undefined);
  }
}

async function leadWhileHeld(candidate: Candidate, options: LeaderElectionOptions): Promise<void> {
  const { lead, signal } = options;
  const term = new AbortController();
  const onStop = (): void => term.abort(signal.reason);
  if (signal.aborted) onStop();
  signal.addEventListener("abort", onStop, { once: true });
  const work = lead(term.signal).finally(() => term.abort(new LeadershipLost("the leader's work ended")));
  try {
    await Promise.all([work.catch(ignoreWhenStopped(term.signal)), renewUntilLost(candidate, term, options)]);
  } finally {
    signal.removeEventListener("abort", onStop);
    await candidate.release();
  }
}

/** Errors of work that was aborted are not reported. */
function ignoreWhenStopped(signal: AbortSignal): (error: unknown) => void {
  return (error) => {
    if (!signal.aborted || signal.reason instanceof LeadershipLost) throw error;
  };
}

async function renewUntilLost(
  candidate: Candidate,
  term: AbortController,
  options: LeaderElectionOptions,
): Promise<void> {
  const { clock, retryPeriodMs = 2_000, renewDeadlineMs = 10_000, onError } = options;
  let disposeDeadline = (): void => undefined;
  const armDeadline = (): void => {
    disposeDeadline();
    const leftMs = candidate.renewedMs + renewDeadlineMs - clock.nowMs();
    disposeDeadline = clock.setTimer(leftMs, () => term.abort(new LeadershipLost("the lease could not be renewed")));
  };
  armDeadline();
  while (!term.signal.aborted) {
    await delay(clock, retryPeriodMs, term.signal).catch(() => undefined);
    if (term.signal.aborted) break;
    try {
      if (!(await candidate.tryAcquire(term.signal))) term.abort(new LeadershipLost("another holds the lease"));
      armDeadline();
    } catch (error) {
      if (!term.signal.aborted) onError?.(error);
    }
  }
  disposeDeadline();
}

class Candidate {
  readonly #options: LeaderElectionOptions;
  /** The lease as last seen, and when that was by our own clock: another machine's clock is not to be trusted. */
  #seen: { readonly record: string; readonly atMs: number } | undefined;
  #held: Lease | undefined;
  /** When the last attempt that succeeded was *sent*: others may count from any moment after that. */
  renewedMs = 0;

  constructor(options: LeaderElectionOptions) {
    this.#options = options;
  }

  /** Acquires or renews; false when another holds the Lease. */
  async tryAcquire(signal: AbortSignal): Promise<boolean> {
    const { client, clock, namespace, name } = this.#options;
    const sentMs = clock.nowMs();
    const lease = await client
      .get(leases, { namespace, name }, { signal })
      .catch((error: unknown) => (isReasonOf(error, "NotFound") ? undefined : rethrow(error)));
    try {
      this.#held = lease === undefined ? await this.#create(signal) : await this.#take(lease, signal);
      if (this.#held !== undefined) this.renewedMs = sentMs;
      return this.#held !== undefined;
    } catch (error) {
      // Another replica was quicker.
      if (error instanceof ApiError && error.status === 409) return false;
      throw error;
    }
  }

  /** Gives up the Lease if it is ours. */
  async release(): Promise<void> {
    const { client, onError } = this.#options;
    const held = this.#held;
    if (held === undefined) return;
    this.#held = undefined;
    const spec = { ...this.#spec(held), holderIdentity: "", leaseDurationSeconds: 1 };
    // Without a signal: this is the last thing a candidate does, often after its own signal.
    await client.update(leases, { ...held, spec }).catch((error: unknown) => onError?.(error));
  }

  #create(signal: AbortSignal): Promise<Lease> {
    const { client, namespace, name } = this.#options;
    const lease: Lease = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { namespace, name },
      spec: this.#spec(undefined),
    };
    return client.create(leases, lease, { signal });
  }

  async #take(lease: Lease, signal: AbortSignal): Promise<Lease | undefined> {
    const { client, identity } = this.#options;
    const holder = lease.spec?.holderIdentity ?? "";
    if (holder !== identity && holder !== "" && !this.#isExpired(lease)) return undefined;
    return client.update(leases, { ...lease, spec: this.#spec(lease) }, { signal });
  }

  #isExpired(lease: Lease): boolean {
    const { clock, leaseDurationMs = 15_000 } = this.#options;
    const record = JSON.stringify(lease.spec);
    const nowMs = clock.nowMs();
    if (this.#seen?.record !== record) this.#seen = { record, atMs: nowMs };
    const durationMs = (lease.spec?.leaseDurationSeconds ?? leaseDurationMs / 1_000) * 1_000;
    return nowMs - this.#seen.atMs >= durationMs;
  }

  #spec(lease: Lease | undefined): NonNullable<Lease["spec"]> {
    const { clock, identity, leaseDurationMs = 15_000 } = this.#options;
    const now = formatMicroTime(clock.nowMs());
    const old = lease?.spec;
    const renewed = old?.holderIdentity === identity;
    return {
      holderIdentity: identity,
      leaseDurationSeconds: Math.ceil(leaseDurationMs / 1_000),
      acquireTime: (renewed ? old?.acquireTime : undefined) ?? now,
      renewTime: now,
      leaseTransitions: (old?.leaseTransitions ?? 0) + (lease === undefined || renewed ? 0 : 1),
    };
  }
}

function rethrow(error: unknown): never {
  throw error;
}
