import { hasReadyReason } from "./condition.ts";
import { objectUnder, readHubFields, readState, withAnnotations } from "./conversion-state.ts";
import type { Sandbox, SandboxStatus, SandboxV1alpha1 } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";

/**
 * The stored form of a v1alpha1 Sandbox. What v1beta1 cannot say (that `replicas` was left out) is
 * remembered in the state annotation, and nothing else: two integers at most, never the whole object.
 */
export function sandboxToV1beta1(source: SandboxV1alpha1): Sandbox {
  const { replicas, ...spec } = source.spec;
  const { status: _status, ...rest } = source;
  const { replicas: _replicas, ...common } = source.status ?? {};
  const { nodeName } = objectUnder(readHubFields(source.metadata), "status");
  const status: SandboxStatus = { ...common, ...(typeof nodeName === "string" && nodeName !== "" ? { nodeName } : {}) };
  return {
    ...rest,
    apiVersion: "agents.x-k8s.io/v1beta1",
    metadata: withAnnotations(source.metadata, (kept) => ({
      ...kept,
      [annotationKeys.hubFields]: undefined,
      [annotationKeys.sandboxState]: replicas === undefined ? JSON.stringify({ spec: {} }) : undefined,
    })),
    spec: { ...spec, operatingMode: replicas === 0 ? "Suspended" : "Running" },
    ...(Object.keys(status).length === 0 ? {} : { status }),
  };
}

/** The v1alpha1 view of a stored Sandbox. The counts follow the mode; a field without a home travels in an annotation. */
export function sandboxToV1alpha1(source: Sandbox): SandboxV1alpha1 {
  const { operatingMode, ...spec } = source.spec;
  const { nodeName, ...status } = source.status ?? {};
  const suspended = operatingMode === "Suspended";
  const remembered = readState(source.metadata, annotationKeys.sandboxState);
  // The reference remembers 0 for a Sandbox that was suspended and has since been resumed: the mode wins.
  const leftOut = remembered !== undefined && !suspended && objectUnder(remembered, "spec")["replicas"] === undefined;
  return {
    ...source,
    apiVersion: "agents.x-k8s.io/v1alpha1",
    metadata: withAnnotations(source.metadata, (kept) => ({
      ...kept,
      [annotationKeys.sandboxState]: undefined,
      [annotationKeys.hubFields]: nodeName === undefined ? undefined : JSON.stringify({ status: { nodeName } }),
    })),
    spec: { ...spec, ...(leftOut ? {} : { replicas: suspended ? 0 : 1 }) },
    status: { ...status, replicas: suspended || hasReadyReason(source, "SandboxExpired") ? 0 : 1 },
  };
}
