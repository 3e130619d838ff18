import type { SandboxClaimAlias, SandboxTemplateAlias, SandboxWarmPoolAlias } from "@agent-sandbox/api";
import { sandboxClaimAliases, sandboxTemplateAliases, sandboxWarmPoolAliases } from "@agent-sandbox/api";
import { byTemplate, type CacheOptions, mirror, type RunningCache, scoped } from "../caches.ts";
import type { Mirror } from "../mirror.ts";

/**
 * The kinds that only the alias controllers read. They are apart from the other caches because nothing else may wait for them: a cluster
 * whose CRDs are older, or are the reference's, does not serve these kinds, and its Sandboxes must run all the same.
 */
export interface AliasCaches {
  readonly templates: Mirror<SandboxTemplateAlias>;
  readonly claims: Mirror<SandboxClaimAlias>;
  readonly pools: Mirror<SandboxWarmPoolAlias>;
  /** The informer behind each mirror, to run and to wait for. */
  readonly informers: readonly RunningCache[];
}

/** Opens the mirrors; nothing is listed before their informers run. */
export function openAliasCaches(options: CacheOptions): AliasCaches {
  const templates = mirror(options, sandboxTemplateAliases, {});
  const claims = mirror(options, sandboxClaimAliases, {
    [byTemplate]: (claim) => [scoped(claim, claim.spec.template)],
  });
  const pools = mirror(options, sandboxWarmPoolAliases, {});
  const informers = [templates.informer, claims.informer, pools.informer];
  return { templates, claims, pools, informers };
}
