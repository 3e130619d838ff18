import type { InjectionPolicy, VolumeClaimTemplate } from "@agent-sandbox/api";
import { type ClaimProblem, claimProblem } from "../claim-status/claim-problem.ts";

/** The volume claim templates of a cold Sandbox. A problem when the template does not allow them. */
export function mergeVolumeClaims(
  template: readonly VolumeClaimTemplate[],
  claim: readonly VolumeClaimTemplate[],
  policy: InjectionPolicy | undefined,
): readonly VolumeClaimTemplate[] | ClaimProblem {
  const bad = badNames(template, "template") ?? badNames(claim, "claim");
  if (bad !== undefined) return bad;
  if (claim.length === 0) return template;
  if (policy !== "Allowed" && policy !== "Overrides")
    return problem("volume claim templates are disallowed by the template");
  const own = new Map(claim.map((entry) => [entry.metadata?.name ?? "", entry]));
  const known = new Set(template.map((entry) => entry.metadata?.name ?? ""));
  if (policy === "Allowed") {
    const shared = [...known].find((name) => own.has(name));
    if (shared !== undefined) return problem(`cannot override template volume "${shared}"`);
  }
  const merged = template.map((entry) => own.get(entry.metadata?.name ?? "") ?? entry);
  return [...merged, ...claim.filter((entry) => !known.has(entry.metadata?.name ?? ""))];
}

function badNames(templates: readonly VolumeClaimTemplate[], whose: string): ClaimProblem | undefined {
  const seen = new Set<string>();
  for (const [index, { metadata }] of templates.entries()) {
    const name = metadata?.name ?? "";
    if (name === "") return problem(`${whose}: name at index ${index} is empty`);
    if (seen.has(name)) return problem(`${whose}: duplicate name "${name}"`);
    seen.add(name);
  }
  return undefined;
}

function problem(detail: string): ClaimProblem {
  return claimProblem("VolumeClaimTemplatesError", `invalid volumeClaimTemplates: ${detail}`);
}
