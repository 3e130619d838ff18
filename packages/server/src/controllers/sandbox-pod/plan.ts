import type { OwnerReference, Pod, Sandbox } from "@agent-sandbox/api";
import {
  annotationKeys,
  controllerReference,
  isControlledBy,
  isNamedBy,
  nameHash,
  ownershipOf,
  sandboxes,
  withReference,
} from "@agent-sandbox/api";
import { adoptionRefusal, foreignOwnerMessage } from "../adoption.ts";
import { planRecovery, type RecoveryPlan } from "../sandbox-recovery/plan.ts";
import type { SleepStage } from "../sandbox-suspension/plan-sleep.ts";
import { hasNamedPod, type PodCandidates, referringPods } from "./own-pod.ts";
import { type MetadataPatch, planPodMetadata } from "./pod-metadata.ts";
import { podOf } from "./pod-object.ts";

/** A change of the Sandbox's Pod. */
export type PodAction =
  | { readonly do: "create-pod"; readonly pod: Pod }
  | {
      readonly do: "delete-pod";
      readonly name: string;
      readonly uid: string;
      /** Set where the delete follows from what the Pod's status says. */
      readonly resourceVersion?: string;
    }
  | { readonly do: "delete-unnamed-pod"; readonly pod: Pod }
  | {
      readonly do: "patch-pod";
      readonly name: string;
      readonly metadata: MetadataPatch;
      /** An adoption: sent with the version it was decided on, so that of two adopters one gets a conflict. */
      readonly adopt?: { readonly ownerReferences: readonly OwnerReference[]; readonly resourceVersion: string };
    };

/** Why the Pod step cannot do its work. */
export type PodFailure =
  | { readonly kind: "multiple-pods"; readonly message: string; readonly names: readonly string[] }
  | { readonly kind: "refused"; readonly message: string };

/** The Pod's part of a pass. */
export interface PodPlan {
  /** The Pod with the tracked name, also when it is not the Sandbox's own. */
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
export interface PodObserved extends PodCandidates {
  readonly mode: "Running" | "Suspended";
  /** How far it has come on its way into a deep sleep or out of it. */
  readonly stage: SleepStage;
  /** The claims were refused or the configuration is: no Pod may be created. */
  readonly createBlocked: boolean;
  readonly nowMs: number;
}

/** The name of the Pod to look for: the annotation where it says something, else the Sandbox's own name. */
export function trackedPodName(sandbox: Sandbox): string {
  const annotated = sandbox.metadata.annotations?.[annotationKeys.podName];
  return annotated === undefined || annotated === "" ? sandbox.metadata.name : annotated;
}

/** Finds the Sandbox's Pod and decides what happens to it. */
export function planPod(observed: PodObserved): PodPlan {
  const { sandbox, tracked, mode, stage } = observed;
  const { own, unnamed } = referringPods(observed);
  if (own.length > 1) {
    const message = `multiple Pods (${own.length}) are controlled by this Sandbox; refusing to choose or create a Pod`;
    const names = own.map((pod) => pod.metadata.name).sort();
    return { failure: { kind: "multiple-pods", message, names }, recovery: { kind: "none" } };
  }
  const [found] = own;
  const pod = found ?? (tracked === undefined || unnamed.includes(tracked) ? undefined : tracked);
  const strayed = found !== undefined && found.metadata.name !== trackedPodName(sandbox);
  if (mode === "Suspended" || stage.name === "restore-failed") {
    return pod === undefined ? planAsleep(unnamed) : planSuspended(observed, pod, strayed);
  }
  if (pod === undefined) return planMissing(observed, unnamed);
  return planPresent(observed, pod);
}

/** Nothing of a sleeping Sandbox may run, and what merely says that it is the Sandbox's must not be found in its way when it wakes. */
function planAsleep(unnamed: readonly Pod[]): PodPlan {
  const [stray] = unnamed.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  return {
    ...(stray === undefined ? {} : { action: deleteUnnamed(stray) }),
    tracked: null,
    recovery: { kind: "none" },
  };
}

function planSuspended({ sandbox, stage }: PodObserved, pod: Pod, strayed: boolean): PodPlan {
  const recovery = { kind: "none" } as const;
  if (!isControlledBy(pod, sandboxes, sandbox)) return { pod, tracked: null, recovery };
  const tracked = strayed ? { tracked: null } : {};
  if (pod.metadata.deletionTimestamp !== undefined) return { pod, recovery, ...tracked };
  const action = departure(pod, stage);
  return { pod, recovery, ...(action !== undefined && { action }), ...tracked };
}

/** How the Pod of a Sandbox that is put to sleep goes; undefined while it stays. */
function departure(pod: Pod, stage: SleepStage): PodAction | undefined {
  switch (stage.name) {
    case "none":
      return deletePod(pod);
    case "announce":
    case "asked":
    case "failed":
    case "frozen":
    case "note-saved":
    case "saved":
    case "restoring":
      return undefined;
    case "restore-failed":
      return stage.isTold ? deletePod(pod) : undefined;
    case "leaving":
    case "unstarted":
      // A Pod that has changed since may have been woken.
      return { ...deletePod(pod), resourceVersion: pod.metadata.resourceVersion ?? "" };
    default:
      return stage satisfies never;
  }
}

/** A Pod that only says it is ours has to leave the name that ours will have; it never ran with anything of the Sandbox's. */
function planMissing({ sandbox, createBlocked }: PodObserved, unnamed: readonly Pod[]): PodPlan {
  const recovery = { kind: "none" } as const;
  const squatter = unnamed.find(({ metadata }) => metadata.name === sandbox.metadata.name);
  if (squatter?.metadata.deletionTimestamp !== undefined) return { recovery };
  if (squatter !== undefined) return { action: deleteUnnamed(squatter), recovery };
  if (createBlocked) return { recovery };
  return { action: { do: "create-pod", pod: podOf(sandbox) }, tracked: sandbox.metadata.name, recovery };
}

function planPresent(observed: PodObserved, pod: Pod): PodPlan {
  const { sandbox, nowMs } = observed;
  const recovery = { kind: "none" } as const;
  const ownership = ownershipOf(pod, sandboxes, sandbox);
  if (ownership === "other") {
    const message = foreignOwnerMessage("pod", pod, sandbox.metadata.name);
    return { failure: { kind: "refused", message }, tracked: null, recovery };
  }
  if (ownership === "unowned") return planAdoption(observed, pod);
  const plan = pod.metadata.deletionTimestamp === undefined ? planRecovery(sandbox, pod, nowMs) : recovery;
  if (plan.kind === "replace") {
    const record = { [annotationKeys.podReplacements]: plan.record };
    return { pod, action: deletePod(pod), tracked: pod.metadata.name, recovery: plan, record };
  }
  const metadata = planPodMetadata(pod, sandbox);
  const action = metadata === undefined ? {} : { action: patchPod(pod, metadata) };
  return { pod, ...action, tracked: pod.metadata.name, recovery: plan };
}

function planAdoption(observed: PodObserved, pod: Pod): PodPlan {
  const { sandbox } = observed;
  const recovery = { kind: "none" } as const;
  // The adoption label is enough while the Sandbox has had no Pod. Later it has volumes and a service name, which a Pod with a forged label must not get.
  if (hasNamedPod(observed) && !isNamedBy(pod, sandbox)) {
    const message = `pod "${pod.metadata.name}" is not owned by sandbox "${sandbox.metadata.name}", which adopts no other Pod than its own once it has had one`;
    const isElsewhere = pod.metadata.name !== sandbox.metadata.name;
    return { failure: { kind: "refused", message }, ...(isElsewhere && { tracked: null }), recovery };
  }
  if (sandbox.spec.restoreFrom !== undefined) {
    const message = `pod "${pod.metadata.name}" is not owned by sandbox "${sandbox.metadata.name}", which starts from a snapshot and so adopts no Pod`;
    return { failure: { kind: "refused", message }, recovery };
  }
  const refusal = adoptionRefusal("pod", pod, nameHash(sandbox.metadata.name));
  if (refusal !== undefined) return { failure: { kind: "refused", message: refusal }, recovery };
  const reference = controllerReference(sandboxes, sandbox);
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

/** Only what the API server itself says is not named goes: the cache may be older than the Pod's name in the status. */
function deleteUnnamed(pod: Pod): PodAction {
  return { do: "delete-unnamed-pod", pod };
}

function deletePod(pod: Pod): Extract<PodAction, { do: "delete-pod" }> {
  return { do: "delete-pod", name: pod.metadata.name, uid: pod.metadata.uid ?? "" };
}

function patchPod(pod: Pod, metadata: MetadataPatch): PodAction {
  return { do: "patch-pod", name: pod.metadata.name, metadata };
}
