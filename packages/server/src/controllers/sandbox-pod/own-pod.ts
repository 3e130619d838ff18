import type { Pod, Sandbox } from "@agent-sandbox/api";
import { isControlledBy, sandboxes } from "@agent-sandbox/api";

/** What is looked through for the Pod of a Sandbox. */
export interface PodCandidates {
  readonly sandbox: Sandbox;
  /** Candidates of the namespace: those with our tracking label and those that refer to us. */
  readonly pods: readonly Pod[];
  /** The Pod with the tracked name, if it exists. */
  readonly tracked: Pod | undefined;
  /** Uid of a Pod that this process made or adopted and that the status may not name yet. */
  readonly made: string | undefined;
}

/** The Pods that refer to a Sandbox, by what the reference is worth. */
export interface ReferringPods {
  /** Pods of the Sandbox; more than one only where the status never named any. */
  readonly own: readonly Pod[];
  /** The reference is all they have: forged, or of a pass that was killed before it could name its Pod. Either way they never had a right. */
  readonly unnamed: readonly Pod[];
}

/**
 * Tells the Sandbox's Pods from those that only say so. A Sandbox that has named a Pod once follows its status alone. One that never did is new,
 * or of a controller that names none: there the reference decides, as in the reference implementation; nothing is kept yet that it could give away.
 * One that starts from a snapshot has that to give away, and so takes no Pod on its word.
 */
export function referringPods(candidates: PodCandidates): ReferringPods {
  const { sandbox, made } = candidates;
  const pods = podsReferringTo(candidates);
  if (!hasNamedPod(candidates) && sandbox.spec.restoreFrom === undefined) return { own: pods, unnamed: [] };
  const named = new Set([sandbox.status?.podUID, made]);
  const isNamed = ({ metadata }: Pod): boolean => metadata.uid !== undefined && named.has(metadata.uid);
  return { own: pods.filter(isNamed), unnamed: pods.filter((pod) => !isNamed(pod)) };
}

/** The Sandbox's Pod; undefined where it has none, or several, of which none is chosen. */
export function onlyOwnPod(candidates: PodCandidates): Pod | undefined {
  const { own } = referringPods(candidates);
  return own.length === 1 ? own[0] : undefined;
}

/** Whether the Sandbox has ever had a Pod that it named. */
export function hasNamedPod({ sandbox, made }: Pick<PodCandidates, "sandbox" | "made">): boolean {
  return sandbox.status?.podUID !== undefined || made !== undefined;
}

/** Every Pod whose controller reference is to this very Sandbox, once. */
export function podsReferringTo({ sandbox, pods, tracked }: Omit<PodCandidates, "made">): Pod[] {
  const byUid = new Map<string, Pod>();
  for (const pod of tracked === undefined ? pods : [...pods, tracked]) {
    if (isControlledBy(pod, sandboxes, sandbox)) byUid.set(pod.metadata.uid ?? pod.metadata.name, pod);
  }
  return [...byUid.values()];
}
