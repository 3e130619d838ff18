import { badRequest } from "./api-error.ts";
import { withAnnotations } from "./conversion-state.ts";
import type { InjectionPolicy, SandboxTemplate, SandboxTemplateV1alpha1 } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";

const policies: readonly InjectionPolicy[] = ["Disallowed", "Allowed", "Overrides"];

/** The stored form of a v1alpha1 template; throws BadRequest where its policy annotation is not a policy. */
export function templateToV1beta1(source: SandboxTemplateV1alpha1): SandboxTemplate {
  const text = source.metadata.annotations?.[annotationKeys.volumeClaimTemplatesPolicy];
  const policy = policies.find((candidate) => candidate === text);
  if (text !== undefined && policy === undefined) {
    throw badRequest(
      `SandboxTemplate ${source.metadata.name}: annotation ${annotationKeys.volumeClaimTemplatesPolicy} is "${text}"; use ${policies.join(", ")}`,
    );
  }
  return {
    ...source,
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    metadata: withAnnotations(source.metadata, (kept) => ({
      ...kept,
      [annotationKeys.volumeClaimTemplatesPolicy]: undefined,
      [annotationKeys.templateState]: undefined,
    })),
    spec: { ...source.spec, ...(policy === undefined ? {} : { volumeClaimTemplatesPolicy: policy }) },
  };
}

/** The v1alpha1 view of a stored template; the field that it lacks travels in an annotation. */
export function templateToV1alpha1(source: SandboxTemplate): SandboxTemplateV1alpha1 {
  const { volumeClaimTemplatesPolicy, ...spec } = source.spec;
  return {
    ...source,
    apiVersion: "extensions.agents.x-k8s.io/v1alpha1",
    metadata: withAnnotations(source.metadata, (kept) => ({
      ...kept,
      [annotationKeys.templateState]: undefined,
      [annotationKeys.volumeClaimTemplatesPolicy]: volumeClaimTemplatesPolicy,
    })),
    spec,
  };
}
