import type { PodSpec, Sandbox, SandboxTemplate, VolumeClaimTemplate } from "@agent-sandbox/api";
import { blueprintOf, nameHash, semanticEqual } from "@agent-sandbox/api";
import { isSecureByDefault } from "../template-network-policy/default-policy.ts";

/** Hash of the blueprint, metadata included: a label for quick comparison; where it differs, `matchesBlueprint` decides. */
export function blueprintHash(template: SandboxTemplate): string {
  const known = hashes.get(template);
  if (known !== undefined) return known;
  const hash = nameHash(canonicalJson(blueprintOf(template)));
  hashes.set(template, hash);
  return hash;
}

/** Hashes by template object: objects in a cache are never changed, and every pass over a pool asks for the same one. */
const hashes = new WeakMap<SandboxTemplate, string>();

/** Hash of the pod template alone, for readers of the deprecated label. */
export function podTemplateHash(template: SandboxTemplate): string {
  return nameHash(canonicalJson(template.spec.podTemplate));
}

function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, member: unknown) => {
    if (typeof member !== "object" || member === null || Array.isArray(member)) return member;
    return Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}

/**
 * The pod spec that is made from a template: no API token unless asked for, and public name servers where the default
 * network policy blocks the cluster's.
 */
export function securePodSpec(template: SandboxTemplate): PodSpec {
  const spec = structuredClone(template.spec.podTemplate.spec);
  spec.automountServiceAccountToken ??= false;
  if (isSecureByDefault(template) && (spec.dnsPolicy ?? "") === "") {
    spec.dnsPolicy = "None";
    // A user's own resolvers and search list stay: replacing them would lose what was asked for.
    spec.dnsConfig = { nameservers: ["8.8.8.8", "1.1.1.1"], ...spec.dnsConfig };
    if ((spec.dnsConfig.nameservers ?? []).length === 0) spec.dnsConfig.nameservers = ["8.8.8.8", "1.1.1.1"];
  }
  return spec;
}

/** Whether a Sandbox is what the template makes today; pod-template metadata does not count. */
export function matchesBlueprint(sandbox: Sandbox, template: SandboxTemplate): boolean {
  const { podTemplate: _made, volumeClaimTemplates: has = [], ...own } = blueprintOf(sandbox);
  const { podTemplate: _given, volumeClaimTemplates: wanted = [], ...given } = blueprintOf(template);
  return (
    semanticEqual(sandbox.spec.podTemplate.spec, securePodSpec(template)) &&
    sameClaims(has, wanted) &&
    semanticEqual(own, given)
  );
}

function sameClaims(a: readonly VolumeClaimTemplate[], b: readonly VolumeClaimTemplate[]): boolean {
  return (
    a.length === b.length &&
    a.every((claim, index) => {
      const other = b[index];
      return claim.metadata?.name === other?.metadata?.name && semanticEqual(claim.spec, other?.spec);
    })
  );
}
