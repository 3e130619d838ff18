// The kinds that articles print in the core group, and what each one means (ADR 51).

import type {
  SandboxClaimAlias,
  SandboxClaimSpec,
  SandboxTemplateAlias,
  SandboxTemplateSpec,
  SandboxWarmPool,
  SandboxWarmPoolAlias,
  SandboxWarmPoolSpec,
} from "./kinds.gen.ts";
import { coreGroup } from "./labels.ts";
import type { Resource } from "./resource.ts";

/** An object of one of these kinds. */
export type Alias = SandboxTemplateAlias | SandboxClaimAlias | SandboxWarmPoolAlias;

/** SandboxTemplates of the core group. */
export const sandboxTemplateAliases: Resource<SandboxTemplateAlias> = aliasOf("SandboxTemplate");
/** SandboxClaims of the core group. */
export const sandboxClaimAliases: Resource<SandboxClaimAlias> = aliasOf("SandboxClaim");
/** SandboxWarmPools of the core group. */
export const sandboxWarmPoolAliases: Resource<SandboxWarmPoolAlias> = aliasOf("SandboxWarmPool");

/** The plurals of these kinds, as roles name them. */
export const aliasResources: readonly string[] = [
  sandboxClaimAliases,
  sandboxTemplateAliases,
  sandboxWarmPoolAliases,
].map(({ resource }) => resource);

function aliasOf(kind: Alias["kind"]) {
  // kubectl takes a plural or a singular that two groups have from the group that discovery names first, which is this one.
  return { group: coreGroup, version: "v1alpha1", kind, resource: `${kind.toLowerCase()}aliases`, namespaced: true };
}

/** The template that is meant. */
export function templateSpecOf({ spec }: SandboxTemplateAlias): SandboxTemplateSpec {
  return { podTemplate: spec.template };
}

/** The pool that is meant. */
export function poolSpecOf({ spec }: SandboxWarmPoolAlias): SandboxWarmPoolSpec {
  const { template, size = 1 } = spec;
  return { replicas: size, sandboxTemplateRef: { name: template } };
}

/** The claim that is meant, out of a pool of its template. */
export function claimSpecOf(pool: SandboxWarmPool): SandboxClaimSpec {
  return { warmPoolRef: { name: pool.metadata.name } };
}

/** The pool that a claim which names none takes: that with most ready members, then the largest, then the first by name. */
export function choosePool(pools: readonly SandboxWarmPool[]): SandboxWarmPool | undefined {
  const ready = ({ status }: SandboxWarmPool): number => status?.readyReplicas ?? 0;
  const size = ({ spec }: SandboxWarmPool): number => spec.replicas ?? 1;
  return pools
    .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
    .toSorted((a, b) => ready(b) - ready(a) || size(b) - size(a) || (a.metadata.name < b.metadata.name ? -1 : 1))[0];
}
