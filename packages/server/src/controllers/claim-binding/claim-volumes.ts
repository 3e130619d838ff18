import type { InjectionPolicy, VolumeClaimTemplate } from "@agent-sandbox/api";
import { ClaimProblem } from "./claim-problem.ts";

/** The volume claim templates of a cold Sandbox. Throws a `ClaimProblem` when the template does not allow them. */
export function mergeVolumeClaims(
  template: readonly VolumeClaimTemplate[],
  claim: readonly VolumeClaimTemplate[],
  policy: InjectionPolicy | undefined,
): VolumeClaimTemplate[] {
  validate(template, "template");
  if (claim.length === 0) return [...template];
  validate(claim, "claim");
  if (policy !== "Allowed" && policy !== "Overrides")
    throw problem("volume claim templates are disallowed by the template");
  const own = new Map(claim.map((entry) => [entry.metadata?.name ?? "", entry]));
  const known = new Set(template.map((entry) => entry.metadata?.name ?? ""));
  if (policy === "Allowed") {
    const shared = [...known].find((name) => own.has(name));
    if (shared !== undefined) throw problem(`cannot override template volume "${shared}"`);
  }
  const merged = template.map((entry) => own.get(entry.metadata?.name ?? "") ?? entry);
  return [...merged, ...claim.filter((entry) => !known.has(entry.metadata?.name ?? ""))];
}

function validate(templates: readonly VolumeClaimTemplate[], whose: string): void {
  const seen = new Set<string>();
  for (const [index, { metadata }] of templates.entries()) {
    const name = metadata?.name ?? "";
    if (name === "") throw problem(`${whose}: name at index ${index} is empty`);
    if (seen.has(name)) throw problem(`${whose}: duplicate name "${name}"`);
    seen.add(name);
  }
}

function problem(detail: string): ClaimProblem {
  return new ClaimProblem("VolumeClaimTemplatesError", `invalid volumeClaimTemplates: ${detail}`);
}
