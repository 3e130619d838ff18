import type { KubeObject, OwnerReference } from "@agent-sandbox/api";

/** Set by a foreground delete: the object goes after everything that blocks it. */
export const foregroundFinalizer = "foregroundDeletion";
/** Set by an orphaning delete: the object goes after its dependents have been let go. */
export const orphanFinalizer = "orphan";

/** An owner as the server has it. `deleting-dependents`: it waits in foreground deletion. `unknown`: its kind is not served. */
export interface OwnerState {
  readonly reference: OwnerReference;
  readonly state: "present" | "absent" | "deleting-dependents" | "unknown";
}

/** Something that names the object as an owner. */
export interface Dependent {
  readonly uid: string;
  /** Whether its reference blocks the owner's foreground deletion. */
  readonly blocks: boolean;
}

/** What one pass looks at: the object as the server has it, its owners and its dependents. */
export interface Observed {
  readonly object: KubeObject;
  readonly owners: readonly OwnerState[];
  readonly dependents: readonly Dependent[];
}

/** One step. Every write carries the object's uid. */
export type Action =
  | { readonly do: "delete"; readonly propagationPolicy: "Background" | "Foreground" | "Orphan" }
  | { readonly do: "drop-owners"; readonly uids: readonly string[] }
  | { readonly do: "drop-finalizer"; readonly finalizer: string }
  | { readonly do: "release-dependents" }
  | { readonly do: "visit-dependents"; readonly uids: readonly string[] };

/** Decides what becomes of one object by what it belongs to and what belongs to it. */
export function planCollection({ object, owners, dependents }: Observed): readonly Action[] {
  const finalizers = object.metadata.finalizers ?? [];
  if (object.metadata.deletionTimestamp !== undefined) return planDeleting(finalizers, dependents);
  if (owners.length === 0) return [];
  const held = owners.filter(({ state }) => state === "present" || state === "unknown");
  const gone = owners.filter(({ state }) => state === "absent");
  const waiting = owners.filter(({ state }) => state === "deleting-dependents");
  if (held.length > 0) {
    const dropped = [...gone, ...waiting].map(({ reference }) => reference.uid);
    return dropped.length === 0 ? [] : [{ do: "drop-owners", uids: dropped }];
  }
  if (waiting.length > 0 && dependents.length > 0) return [{ do: "delete", propagationPolicy: "Foreground" }];
  return [{ do: "delete", propagationPolicy: policyOf(finalizers) }];
}

function planDeleting(finalizers: readonly string[], dependents: readonly Dependent[]): readonly Action[] {
  if (finalizers.includes(orphanFinalizer)) {
    if (dependents.length === 0) return [{ do: "drop-finalizer", finalizer: orphanFinalizer }];
    return [{ do: "release-dependents" }, { do: "drop-finalizer", finalizer: orphanFinalizer }];
  }
  if (!finalizers.includes(foregroundFinalizer)) return [];
  const visit: Action = { do: "visit-dependents", uids: dependents.map(({ uid }) => uid) };
  if (dependents.some(({ blocks }) => blocks)) return [visit];
  const drop: Action = { do: "drop-finalizer", finalizer: foregroundFinalizer };
  return dependents.length === 0 ? [drop] : [visit, drop];
}

/** A finalizer that is there already says how the object's own dependents should be treated. */
function policyOf(finalizers: readonly string[]): "Background" | "Foreground" | "Orphan" {
  if (finalizers.includes(orphanFinalizer)) return "Orphan";
  return finalizers.includes(foregroundFinalizer) ? "Foreground" : "Background";
}
