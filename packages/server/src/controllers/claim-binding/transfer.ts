import type { PodTemplateMetadata, Sandbox, SandboxClaim, SandboxTemplate } from "@agent-sandbox/api";
import {
  annotationKeys,
  controllerReference,
  isReservedAnnotation,
  isReservedLabel,
  labelKeys,
  nameHash,
  sandboxClaims,
} from "@agent-sandbox/api";
import { type ClaimProblem, isProblem } from "../claim-status/claim-problem.ts";
import { templateMetadata } from "../sandbox-pod/pod-metadata.ts";
import { takenStamp } from "../sandbox-suspension/effective-mode.ts";
import { mergePodMetadata } from "./pod-metadata-policy.ts";

type Changes = Record<string, string | null>;

/** A merge patch of a Sandbox. */
export interface SandboxPatch {
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly spec?: { readonly podTemplate: { readonly metadata: { labels?: Changes; annotations?: Changes } } };
}

/**
 * The one write that makes a pool member the claim's, against the version it was judged by. `spec` is touched only
 * where the claim asks for metadata of its own: otherwise the generation stays, and with it the Sandbox's status.
 */
export function planTransfer(
  sandbox: Sandbox,
  claim: SandboxClaim,
  { template, nowMs }: { readonly template: SandboxTemplate | undefined; readonly nowMs: number },
): SandboxPatch | ClaimProblem {
  const { uid, resourceVersion, name, labels = {} } = sandbox.metadata;
  const reference = controllerReference(sandboxClaims, claim);
  const adopted: Sandbox = { ...sandbox, metadata: { ...sandbox.metadata, ownerReferences: [reference] } };
  const podMetadata = planPodTemplateMetadata(adopted, claim, template);
  if (isProblem(podMetadata)) return podMetadata;
  const trace = claim.metadata.annotations?.[annotationKeys.traceContext];
  const templateHash =
    labels[labelKeys.templateRefHash] ?? (template === undefined ? undefined : nameHash(template.metadata.name));
  return {
    metadata: {
      uid,
      resourceVersion,
      ownerReferences: [reference],
      labels: {
        [labelKeys.warmPoolSandbox]: null,
        [labelKeys.podTemplateHash]: null,
        [labelKeys.templateHash]: null,
        [labelKeys.launchType]: "warm",
        [labelKeys.claimUid]: claim.metadata.uid ?? "",
        [labelKeys.createdBy]: claim.metadata.labels?.[labelKeys.createdBy] ?? null,
        ...(templateHash === undefined ? {} : { [labelKeys.templateRefHash]: templateHash }),
      },
      annotations: {
        [annotationKeys.podName]: name,
        ...takenStamp(sandbox, nowMs),
        ...(trace === undefined ? {} : { [annotationKeys.traceContext]: trace }),
        ...(podMetadata === undefined ? {} : { [annotationKeys.poolDefaultAnnotations]: null }),
      },
    },
    ...(podMetadata === undefined ? {} : { spec: { podTemplate: { metadata: podMetadata } } }),
  };
}

/** Brings a bound Sandbox in line with claim and template, or undefined when it is. */
export function planBoundMetadata(
  sandbox: Sandbox,
  claim: SandboxClaim,
  template: SandboxTemplate | undefined,
): SandboxPatch | ClaimProblem | undefined {
  const labels: Changes = {};
  const creator = claim.metadata.labels?.[labelKeys.createdBy];
  if (sandbox.metadata.labels?.[labelKeys.createdBy] !== creator) labels[labelKeys.createdBy] = creator ?? null;
  const hash = template === undefined ? undefined : nameHash(template.metadata.name);
  if (hash !== undefined && sandbox.metadata.labels?.[labelKeys.templateRefHash] !== hash)
    labels[labelKeys.templateRefHash] = hash;
  const podMetadata = template === undefined ? undefined : planPodTemplateMetadata(sandbox, claim, template);
  if (isProblem(podMetadata)) return podMetadata;
  const marked =
    podMetadata !== undefined && sandbox.metadata.annotations?.[annotationKeys.poolDefaultAnnotations] !== undefined;
  if (Object.keys(labels).length === 0 && podMetadata === undefined) return undefined;
  return {
    metadata: {
      uid: sandbox.metadata.uid,
      ...(Object.keys(labels).length > 0 ? { labels } : {}),
      ...(marked ? { annotations: { [annotationKeys.poolDefaultAnnotations]: null } } : {}),
    },
    ...(podMetadata === undefined ? {} : { spec: { podTemplate: { metadata: podMetadata } } }),
  };
}

/**
 * Changes of the pod template's metadata, or undefined when what reaches the Pod is right already. Without a template
 * only the claim's keys are added. A problem where the claim contradicts the template.
 */
function planPodTemplateMetadata(
  sandbox: Sandbox,
  claim: SandboxClaim,
  template: SandboxTemplate | undefined,
): { labels?: Changes; annotations?: Changes } | ClaimProblem | undefined {
  const present = templateMetadata(sandbox);
  const extra = claim.spec.additionalPodMetadata;
  const wanted: PodTemplateMetadata | ClaimProblem =
    template === undefined
      ? {
          labels: { ...present.labels, ...extra?.labels },
          annotations: { ...present.annotations, ...extra?.annotations },
        }
      : mergePodMetadata(template.spec.podTemplate.metadata, extra);
  if (isProblem(wanted)) return wanted;
  const wantedLabels = keep(wanted.labels, (key) => !isReservedLabel(key));
  const wantedAnnotations = keep(wanted.annotations, (key) => !isReservedAnnotation(key));
  if (same(present.labels, wantedLabels) && same(present.annotations, wantedAnnotations)) return undefined;
  const own = sandbox.spec.podTemplate.metadata;
  const labels = diff(
    keep(own?.labels, (key) => !isReservedLabel(key)),
    wantedLabels,
  );
  const annotations = diff(
    keep(own?.annotations, (key) => !isReservedAnnotation(key)),
    wantedAnnotations,
  );
  return {
    ...(Object.keys(labels).length > 0 ? { labels } : {}),
    ...(Object.keys(annotations).length > 0 ? { annotations } : {}),
  };
}

function keep(values: Record<string, string> | undefined, wanted: (key: string) => boolean): Record<string, string> {
  return Object.fromEntries(Object.entries(values ?? {}).filter(([key]) => wanted(key)));
}

function same(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => a[key] === b[key]);
}

function diff(before: Readonly<Record<string, string>>, after: Readonly<Record<string, string>>): Changes {
  const changes: Changes = {};
  for (const key of Object.keys(before)) if (after[key] === undefined) changes[key] = null;
  for (const [key, value] of Object.entries(after)) if (before[key] !== value) changes[key] = value;
  return changes;
}
