/** What all followers of one pod's logs read together in a second, so that a pod that never stops writing costs the node a fixed part of its time. */
const bytesPerSecond = 4 * 1024 * 1024;

interface Shared {
  followers: number;
  /** When what was read so far would have been read at the pace. */
  dueMs: number;
}

/** One follower's part of its pod's pace. */
export interface FollowPace extends Disposable {
  /** Counts bytes that were read; the result is how long to wait before the next ones. */
  spend(bytes: number, nowMs: number): number;
}

/** The paces of all pods whose logs are followed. Bound: one entry per such pod. */
export class FollowPaces {
  readonly #shared = new Map<string, Shared>();

  /** Joins the followers of a pod until the result is disposed. */
  open(pod: string): FollowPace {
    const shared = this.#shared.get(pod) ?? { followers: 0, dueMs: 0 };
    this.#shared.set(pod, shared);
    shared.followers += 1;
    return {
      spend: (bytes, nowMs) => {
        shared.dueMs = Math.max(shared.dueMs, nowMs) + (bytes / bytesPerSecond) * 1000;
        return shared.dueMs - nowMs;
      },
      [Symbol.dispose]: () => {
        shared.followers -= 1;
        if (shared.followers === 0) this.#shared.delete(pod);
      },
    };
  }
}
