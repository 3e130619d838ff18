import type { OwnerReference, Pod, Sandbox } from "@agent-sandbox/api";
import { nameHash } from "@agent-sandbox/api";
import {
  adoptionRefusal,
  controllerReferenceTo,
  foreignOwnerMessage,
  ownershipOf,
  withReference,
} from "../ownership.ts";
import { sandboxOwner } from "../sandbox-owner.ts";
import { planRecovery, type RecoveryPlan } from "../sandbox-recovery/plan.ts";
import { podNameAnnotation, podReplacementsAnnotation } from "../well-known.ts";
import { type MetadataPatch, planPodMetadata } from "./pod-metadata.ts";
import { podOf } from "./pod-object.ts";

/** A change of the Sandbox's Pod. */
export type PodAction =
  | { readonly do: "create-pod"; readonly pod: Pod }
  | { readonly do: "delete-pod"; readonly name: string; readonly uid: string }
  | {
      readonly do: "patch-pod";
      readonly name: string;
      readonly metadata: MetadataPatch;
      /** An adoption: sent with the version it was decided on, so that two adopters cannot both win. */
      readonly adopt?: { readonly ownerReferences: readonly OwnerReference[]; readonly resourceVersion: string };
    };

/** Why the Pod step cannot do its work. */
export type PodFailure =
  | { readonly kind: "multiple-pods"; readonly message: string; readonly names: readonly string[] }
  | { readonly kind: "refused"; readonly message: string };

/** The Pod's part of a pass. */
export interface PodPlan {
  /** The Pod this Sandbox looks at, whoever owns it. */
  readonly pod?: Pod;
  readonly action?: PodAction;
  readonly failure?: PodFailure;
  /** Desired `pod-name` annotation: a name, null to remove it, undefined to leave it. */
  readonly tracked?: string | null;
  readonly recovery: RecoveryPlan;
  /** Annotations to write on the Sandbox before the Pod is touched. */
  readonly record?: Readonly<Record<string, string>>;
}

/** What the Pod step sees. */
export interface PodObserved {
  readonly sandbox: Sandbox;
  readonly mode: "Running" | "Suspended";
  /** Candidates of the namespace: those with our tracking label and those we control. */
  readonly pods: readonly Pod[];
  /** The Pod with the tracked name, if it exists. */
  readonly tracked: Pod | undefined;
  /** The claims were refused or the configuration is: no Pod may be created. */
  readonly createBlocked: boolean;
  readonly nowMs: number;
}

/** The name of the Pod to look for: the annotation where it says something, else the Sandbox's own name. */
export function trackedPodName(sandbox: Sandbox): string {
  const annotated = sandbox.metadata.annotations?.[podNameAnnotation];
  return annotated === undefined || annotated === "" ? sandbox.metadata.name : annotated;
}

/** Finds the Pod by UID-checked ownership and decides what happens to it. */
export function planPod(observed: PodObserved): PodPlan {
  const { sandbox, tracked, mode } = observed;
  const owned = ownedPods(observed);
  if (owned.length > 1) {
    const message = `multiple Pods (${owned.length}) are controlled by this Sandbox; refusing to choose or create a Pod`;
    const names = owned.map((pod) => pod.metadata.name).sort();
    return { failure: { kind: "multiple-pods", message, names }, recovery: { kind: "none" } };
  }
  const pod = owned[0] ?? tracked;
  const strayed = owned[0] !== undefined && owned[0].metadata.name !== trackedPodName(sandbox);
  if (mode === "Suspended") return planSuspended(sandbox, pod, strayed);
  if (pod === undefined) return planMissing(observed);
  return planPresent(observed, pod);
}

/** Every Pod of the namespace that this very Sandbox controls, once. */
export function ownedPods({ sandbox, pods, tracked }: Pick<PodObserved, "sandbox" | "pods" | "tracked">): Pod[] {
  const byUid = new Map<string, Pod>();
  for (const pod of tracked === undefined ? pods : [...pods, tracked]) {
    if (ownershipOf(pod, sandbox.metadata.uid) === "owned") byUid.set(pod.metadata.uid ?? pod.metadata.name, pod);
  }
  return [...byUid.values()];
}

function planSuspended(sandbox: Sandbox, pod: Pod | undefined, strayed: boolean): PodPlan {
  const recovery = { kind: "none" } as const;
  if (pod === undefined) return { tracked: null, recovery };
  if (ownershipOf(pod, sandbox.metadata.uid) !== "owned") return { pod, tracked: null, recovery };
  const tracked = strayed ? { tracked: null } : {};
  if (pod.metadata.deletionTimestamp !== undefined) return { pod, recovery, ...tracked };
  return { pod, action: deletePod(pod), recovery, ...tracked };
}

function planMissing({ sandbox, createBlocked }: PodObserved): PodPlan {
  const recovery = { kind: "none" } as const;
  if (createBlocked) return { recovery };
  return { action: { do: "create-pod", pod: podOf(sandbox) }, tracked: sandbox.metadata.name, recovery };
}

function planPresent({ sandbox, nowMs }: PodObserved, pod: Pod): PodPlan {
  const recovery = { kind: "none" } as const;
  const ownership = ownershipOf(pod, sandbox.metadata.uid);
  if (ownership === "other") {
    const message = foreignOwnerMessage("pod", pod, sandbox.metadata.name);
    return { failure: { kind: "refused", message }, tracked: null, recovery };
  }
  if (ownership === "unowned") return planAdoption(sandbox, pod);
  const plan = pod.metadata.deletionTimestamp === undefined ? planRecovery(sandbox, pod, nowMs) : recovery;
  if (plan.kind === "replace") {
    const record = { [podReplacementsAnnotation]: plan.record };
    return { pod, action: deletePod(pod), tracked: pod.metadata.name, recovery: plan, record };
  }
  const metadata = planPodMetadata(pod, sandbox);
  const action = metadata === undefined ? {} : { action: patchPod(pod, metadata) };
  return { pod, ...action, tracked: pod.metadata.name, recovery: plan };
}

function planAdoption(sandbox: Sandbox, pod: Pod): PodPlan {
  const recovery = { kind: "none" } as const;
  const refusal = adoptionRefusal("pod", pod, nameHash(sandbox.metadata.name));
  if (refusal !== undefined) return { failure: { kind: "refused", message: refusal }, recovery };
  const reference = controllerReferenceTo(sandboxOwner(sandbox));
  const action: PodAction = {
    do: "patch-pod",
    name: pod.metadata.name,
    metadata: planPodMetadata(pod, sandbox) ?? {},
    adopt: {
      ownerReferences: withReference(pod.metadata.ownerReferences, reference),
      resourceVersion: pod.metadata.resourceVersion ?? "",
    },
  };
  return { pod, action, tracked: pod.metadata.name, recovery };
}

function deletePod(pod: Pod): PodAction {
  return { do: "delete-pod", name: pod.metadata.name, uid: pod.metadata.uid ?? "" };
}

function patchPod(pod: Pod, metadata: MetadataPatch): PodAction {
  return { do: "patch-pod", name: pod.metadata.name, metadata };
}
