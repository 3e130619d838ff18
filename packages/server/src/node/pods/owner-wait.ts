import type { OwnerReference, Pod } from "@agent-sandbox/api";

/**
 * How long a pod waits to be named by its Sandbox before its status says so. The controller names a pod in the same pass that makes it, so that a pod
 * which waits longer was not made by it, or the controller is away; a status and an event for each start would be two writes for nothing.
 */
const quietMs = 2_000;

/** Since when pods wait for their Sandbox to name them. Bound: one entry per such pod of this node. */
export class OwnerWait {
  readonly #since = new Map<string, { readonly uid: string; readonly sinceMs: number }>();

  /** Milliseconds until the status mentions the wait; 0 once it does. */
  remainingMs(key: string, { metadata: { uid = "" } }: Pod, nowMs: number): number {
    const known = this.#since.get(key);
    const sinceMs = known?.uid === uid ? known.sinceMs : nowMs;
    this.#since.set(key, { uid, sinceMs });
    return Math.max(0, sinceMs + quietMs - nowMs);
  }

  /** It is named, or gone. */
  clear(key: string): void {
    this.#since.delete(key);
  }
}

/** The obstacle that the wait becomes. */
export function unprovenMessage({ name }: OwnerReference): string {
  return `waiting for sandbox "${name}" to name this pod in status.podUID; only the pod that the sandbox controller made or adopted gets the sandbox's files and address`;
}
