import type { Sandbox, SandboxClaim, SandboxTemplate } from "@agent-sandbox/api";
import {
  annotationKeys,
  blueprintOf,
  controllerReference,
  isDnsLabel,
  labelKeys,
  nameHash,
  sandboxClaims,
} from "@agent-sandbox/api";
import { type ClaimProblem, isProblem } from "../claim-status/claim-problem.ts";
import { securePodSpec } from "../warm-pool-population/blueprint.ts";
import { mergeVolumeClaims } from "./claim-volumes.ts";
import { withEnvironment } from "./environment.ts";
import { mergePodMetadata } from "./pod-metadata-policy.ts";

/** Room for a dash and the eight digits of the hash in a host name. */
const baseMaxLength = 63 - 9;

/** The claim's own name; where that cannot be a host name, a stable one made from it. */
export function coldSandboxName(claim: SandboxClaim): string {
  const { name } = claim.metadata;
  if (isDnsLabel(name)) return name;
  const base = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]/g, "-")
    .slice(0, baseMaxLength)
    .replace(/-+$/, "");
  return `${base === "" ? "sandbox" : base}-${nameHash(name)}`;
}

/** The Sandbox of a cold start; a problem when claim and template do not go together. */
export function coldSandbox(claim: SandboxClaim, template: SandboxTemplate): Sandbox | ClaimProblem {
  const { env = [], volumeClaimTemplates = [], additionalPodMetadata } = claim.spec;
  const volumes = mergeVolumeClaims(
    template.spec.volumeClaimTemplates ?? [],
    volumeClaimTemplates,
    template.spec.volumeClaimTemplatesPolicy,
  );
  if (isProblem(volumes)) return volumes;
  const merged = mergePodMetadata(template.spec.podTemplate.metadata, additionalPodMetadata);
  if (isProblem(merged)) return merged;
  const creator = claim.metadata.labels?.[labelKeys.createdBy];
  const { [labelKeys.createdBy]: _templateCreator, ...labels } = merged.labels;
  const marks = {
    [labelKeys.claimUid]: claim.metadata.uid ?? "",
    [labelKeys.templateRefHash]: nameHash(template.metadata.name),
    ...(creator === undefined ? {} : { [labelKeys.createdBy]: creator }),
  };
  const spec = withEnvironment(securePodSpec(template), env, template.spec.envVarsInjectionPolicy);
  if (isProblem(spec)) return spec;
  const trace = claim.metadata.annotations?.[annotationKeys.traceContext];
  const { podTemplate: _podTemplate, volumeClaimTemplates: _volumes, ...given } = blueprintOf(template);
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: {
      name: coldSandboxName(claim),
      namespace: claim.metadata.namespace ?? "",
      labels: { ...marks, [labelKeys.launchType]: "cold" },
      annotations: {
        [annotationKeys.templateRef]: template.metadata.name,
        ...(trace === undefined ? {} : { [annotationKeys.traceContext]: trace }),
      },
      ownerReferences: [controllerReference(sandboxClaims, claim)],
    },
    spec: {
      ...structuredClone(given),
      podTemplate: {
        metadata: {
          labels: { ...labels, ...marks },
          ...(Object.keys(merged.annotations).length > 0 ? { annotations: merged.annotations } : {}),
        },
        spec,
      },
      ...(volumes.length > 0 ? { volumeClaimTemplates: structuredClone([...volumes]) } : {}),
    },
  };
}
