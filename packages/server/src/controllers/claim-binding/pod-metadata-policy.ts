import type { PodTemplateMetadata } from "@agent-sandbox/api";
import { annotationKeys, coreGroup, labelValueProblems, ownGroup, qualifiedNameProblems } from "@agent-sandbox/api";
import { type ClaimProblem, claimProblem } from "../claim-status/claim-problem.ts";

/**
 * Domains that belong to the system; a claim's metadata may not use them or what is below them. In our own domain the node
 * reads which services a Pod runs, as any user, and whether it has a daemon: only writers of Sandboxes and templates may say that.
 */
export const restrictedDomains = ["kubernetes.io", "k8s.io", coreGroup, ownGroup];

/** `InvalidMetadata` naming every bad key, in order, so that the text is the same each time; undefined when all are good. */
export function podMetadataProblem(
  metadata: PodTemplateMetadata | undefined,
  allowedDomains: readonly string[],
): ClaimProblem | undefined {
  const problems = [
    ...sorted(metadata?.labels).flatMap(([key, value]) => say("label", key, labelProblem(key, value, allowedDomains))),
    ...sorted(metadata?.annotations).flatMap(([key]) => say("annotation", key, annotationProblem(key))),
  ];
  if (problems.length === 0) return undefined;
  return claimProblem("InvalidMetadata", `invalid additionalPodMetadata: ${problems.join("; ")}`);
}

function say(kind: "label" | "annotation", key: string, problem: string | undefined): string[] {
  return problem === undefined ? [] : [`failed to validate ${kind} "${key}": ${problem}`];
}

function sorted(values: Record<string, string> | undefined): [string, string][] {
  return Object.entries(values ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
}

function labelProblem(key: string, value: string, allowedDomains: readonly string[]): string | undefined {
  const [bad] = qualifiedNameProblems(key);
  if (bad !== undefined) return `invalid key: ${bad}`;
  if (key.toLowerCase() === "app" && value.toLowerCase() === "sandbox-router") {
    return 'value "sandbox-router" is reserved for the router';
  }
  const domain = domainOf(key);
  if (domain === undefined) return "labels need a domain prefix";
  if (!allowedDomains.some((allowed) => isWithin(domain, allowed))) return `domain "${domain}" is not allowed`;
  const [badValue] = labelValueProblems(value);
  return badValue === undefined ? undefined : `invalid value: ${badValue}`;
}

function annotationProblem(key: string): string | undefined {
  const [bad] = qualifiedNameProblems(key);
  if (bad !== undefined) return `invalid key: ${bad}`;
  if (key === annotationKeys.safeToEvict) return undefined;
  const domain = domainOf(key);
  const restricted = domain !== undefined && restrictedDomains.some((system) => isWithin(domain, system));
  return restricted ? `domain "${domain}" is restricted` : undefined;
}

function domainOf(key: string): string | undefined {
  const slash = key.indexOf("/");
  return slash < 0 ? undefined : key.slice(0, slash).toLowerCase();
}

/** Whether a domain is another one or below it. */
export function isWithin(domain: string, parent: string): boolean {
  return domain === parent || domain.endsWith(`.${parent}`);
}

/** Template metadata plus the claim's. A claim may repeat a value; one that changes a value is a problem. */
export function mergePodMetadata(
  template: PodTemplateMetadata | undefined,
  claim: PodTemplateMetadata | undefined,
): MergedMetadata | ClaimProblem {
  return (
    overrideConflict("label", template?.labels, claim?.labels) ??
    overrideConflict("annotation", template?.annotations, claim?.annotations) ?? {
      labels: { ...template?.labels, ...claim?.labels },
      annotations: { ...template?.annotations, ...claim?.annotations },
    }
  );
}

/** Pod-template metadata with both maps present. */
export interface MergedMetadata {
  readonly labels: Record<string, string>;
  readonly annotations: Record<string, string>;
}

function overrideConflict(
  kind: "label" | "annotation",
  template: Record<string, string> | undefined,
  claim: Record<string, string> | undefined,
): ClaimProblem | undefined {
  for (const [key, value] of sorted(claim)) {
    const fixed = template?.[key];
    if (fixed === undefined || fixed === value) continue;
    const message = `metadata override conflict: ${kind} "${key}" is defined in template with value "${fixed}", but claim requests "${value}"`;
    return claimProblem("InvalidMetadata", message);
  }
  return undefined;
}
