import type { Pod } from "@agent-sandbox/api/builtin.gen";
import { findCondition } from "@agent-sandbox/api/condition";
import { crashLoopOf, describeCrashLoop } from "@agent-sandbox/api/crash-loop";
import type { Sandbox, SandboxClaim } from "@agent-sandbox/api/kinds.gen";
import type { Condition, KubeObject } from "@agent-sandbox/api/meta";
import { keyOf } from "@agent-sandbox/api/object-key";
import { sandboxPhase } from "@agent-sandbox/api/sandbox-phase";
import { SandboxError, tryCodeOfReason } from "../errors/sandbox-error.ts";

/** Whether waiting for an object is over. */
export type Verdict =
  | { readonly kind: "done" }
  | { readonly kind: "waiting"; readonly why: string }
  | { readonly kind: "failed"; readonly error: SandboxError };

/** The condition of a type, if the controller has set it for the object as it is now. */
export function conditionOf(
  object: KubeObject & { status?: { conditions?: Condition[] } },
  type: string,
): Condition | undefined {
  const condition = findCondition(object.status?.conditions, type);
  const { generation = 0 } = object.metadata;
  // A condition about an older spec says nothing about the change that was just made.
  return condition?.observedGeneration !== undefined && condition.observedGeneration < generation
    ? undefined
    : condition;
}

/** Whether a Sandbox can be talked to. */
export function judgeSandbox(sandbox: Sandbox): Verdict {
  const name = keyOf(sandbox);
  const { phase, reason, message, isTerminal, isObserved } = sandboxPhase(sandbox);
  if (phase === "deleting") return failed("not-found", `sandbox ${name} is being deleted`);
  // A condition about an older spec says nothing about the change that was just made.
  if (!isObserved) return { kind: "waiting", why: "waiting for the controller" };
  if (phase === "ready") return { kind: "done" };
  if (isTerminal)
    return failed(tryCodeOfReason(reason) ?? "sandbox-failed", `sandbox ${name} is not ready: ${message}`);
  return { kind: "waiting", why: message };
}

/** Reasons of a claim that no waiting mends. */
const claimEnds = new Set([
  "TemplateNotFound",
  "WarmPoolNotFound",
  "EnvVarsInjectionRejected",
  "VolumeClaimTemplatesError",
  "InvalidConfiguration",
  "InvalidMetadata",
  "BindTimeout",
  "ClaimExpired",
  "SandboxExpired",
  "PodFailed",
  "PodSucceeded",
]);

/** Whether a claim has its sandbox. */
export function judgeClaim(claim: SandboxClaim): Verdict {
  const name = keyOf(claim);
  if (claim.metadata.deletionTimestamp !== undefined) return failed("not-found", `claim ${name} is being deleted`);
  const ready = conditionOf(claim, "Ready");
  if (ready?.status === "True" && claim.status?.sandbox?.name !== undefined) return { kind: "done" };
  if (ready !== undefined && claimEnds.has(ready.reason)) {
    const pool = claim.spec.warmPoolRef.name;
    const code = tryCodeOfReason(ready.reason) ?? "claim-failed";
    return failed(code, `claim ${name} on pool '${pool}' failed: ${ready.message}`);
  }
  return { kind: "waiting", why: ready?.message ?? "waiting for the controller" };
}

/** Reasons of a waiting container that tell of the user's mistake; a first failed pull may be the network's and is left out. */
const containerEnds = new Set([
  "ImagePullBackOff",
  "InvalidImageName",
  "ErrImageNeverPull",
  "CreateContainerConfigError",
  "CreateContainerError",
  "RunContainerError",
  "CrashLoopBackOff",
]);

// What a scheduler says while a new volume is being bound: it passes, wherever the Pod may run.
const unboundVolumes = "unbound immediate PersistentVolumeClaims";

/** Whether a Pod shows why its Sandbox will not start; a Pod alone is never done. */
export function judgePod(pod: Pod, isUnschedulableFinal: boolean): Verdict {
  const statuses = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
  const crash = crashLoopOf(pod);
  if (crash !== undefined) return failed("crash-loop", describeCrashLoop(crash, pod.spec));
  for (const { image, state, lastState } of statuses) {
    const { reason = "", message = "" } = state?.waiting ?? {};
    if (reason === "" || reason === "PodInitializing") continue;
    if (!containerEnds.has(reason)) return { kind: "waiting", why: describeWaiting(reason, image) };
    const last = lastState?.terminated;
    const exit =
      last === undefined ? "" : `; it exited with ${last.exitCode}${last.message ? `: ${last.message}` : ""}`;
    const isImage = reason.includes("Image");
    return failed(
      isImage ? "invalid-argument" : "sandbox-failed",
      isImage
        ? `image '${image}' cannot be used: ${message || reason}`
        : `container cannot start: ${message || reason}${exit}`,
    );
  }
  if (pod.status?.reason !== undefined && pod.status.phase === "Failed") {
    return failed("sandbox-failed", `${pod.status.reason}: ${pod.status.message ?? ""}`);
  }
  const scheduled = findCondition(pod.status?.conditions, "PodScheduled");
  if (scheduled?.status === "False" && scheduled.reason === "Unschedulable") {
    const why = `cannot be scheduled: ${scheduled.message ?? ""}`;
    return isUnschedulableFinal && !why.includes(unboundVolumes)
      ? failed("quota-exceeded", why)
      : { kind: "waiting", why };
  }
  return { kind: "waiting", why: `pod is ${pod.status?.phase ?? "being made"}` };
}

/** Why a Pod failed, in its own words. */
export function describeFailure({ status }: Pod): string | undefined {
  if (status?.message !== undefined || status?.reason !== undefined) {
    return [status.reason, status.message].filter((text) => text !== undefined && text !== "").join(": ");
  }
  const ended = status?.containerStatuses?.map(({ state }) => state?.terminated).find((one) => one !== undefined);
  if (ended === undefined) return undefined;
  return `it exited with ${ended.exitCode}${ended.message ? `: ${ended.message}` : ended.reason ? ` (${ended.reason})` : ""}`;
}

function describeWaiting(reason: string, image: string): string {
  if (reason === "ContainerCreating") return "starting the container";
  return reason === "ErrImagePull" || reason === "Pulling" ? `pulling image ${image}` : reason;
}

function failed(code: SandboxError["code"], message: string): Verdict {
  return { kind: "failed", error: new SandboxError(code, message) };
}
