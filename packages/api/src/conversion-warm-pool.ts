import { objectUnder, readHubFields, withAnnotations } from "./conversion-state.ts";
import type { SandboxWarmPool, SandboxWarmPoolV1alpha1 } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";

/** The stored form of a v1alpha1 pool. */
export function warmPoolToV1beta1(source: SandboxWarmPoolV1alpha1): SandboxWarmPool {
  const { status: _status, ...rest } = source;
  const { observedGeneration } = objectUnder(readHubFields(source.metadata), "status");
  const status = {
    ...source.status,
    ...(typeof observedGeneration === "number" && observedGeneration >= 0 ? { observedGeneration } : {}),
  };
  return {
    ...rest,
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    metadata: withAnnotations(source.metadata, (kept) => ({
      ...kept,
      [annotationKeys.warmPoolState]: undefined,
      [annotationKeys.hubFields]: undefined,
    })),
    ...(Object.keys(status).length === 0 ? {} : { status }),
  };
}

/** The v1alpha1 view of a stored pool; the observed generation travels in an annotation. */
export function warmPoolToV1alpha1(source: SandboxWarmPool): SandboxWarmPoolV1alpha1 {
  const { status: _status, ...rest } = source;
  const { observedGeneration, ...status } = source.status ?? {};
  const carried = observedGeneration === undefined ? undefined : JSON.stringify({ status: { observedGeneration } });
  return {
    ...rest,
    apiVersion: "extensions.agents.x-k8s.io/v1alpha1",
    metadata: withAnnotations(source.metadata, (kept) => ({
      ...kept,
      [annotationKeys.warmPoolState]: undefined,
      [annotationKeys.hubFields]: carried,
    })),
    spec: { ...source.spec, replicas: source.spec.replicas ?? 1 },
    ...(Object.keys(status).length === 0 ? {} : { status }),
  };
}
