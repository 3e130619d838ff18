import type {
  Alias,
  Resource,
  SandboxClaim,
  SandboxClaimAlias,
  SandboxTemplate,
  SandboxTemplateAlias,
  SandboxWarmPool,
  SandboxWarmPoolAlias,
} from "@agent-sandbox/api";
import {
  choosePool,
  claimSpecOf,
  poolSpecOf,
  sandboxClaimAliases,
  sandboxClaims,
  sandboxTemplateAliases,
  sandboxTemplates,
  sandboxWarmPoolAliases,
  sandboxWarmPools,
  shadowPoolOf,
  templateSpecOf,
} from "@agent-sandbox/api";
import { byTemplate, type ExtensionCaches, scoped } from "../caches.ts";
import type { Mirror } from "../mirror.ts";
import type { AliasCaches } from "./caches.ts";
import type { AliasObserved, Real, Translation } from "./plan.ts";

/** How one kind of alias is read and what is made of it. */
export interface AliasKind<A extends Alias, R extends Real> extends Pick<AliasObserved<A, R>, "readyType"> {
  readonly aliasResource: Resource<A>;
  readonly realResource: Resource<R>;
  readonly aliases: Mirror<A>;
  readonly reals: Mirror<R>;
  /** What the alias means, given the object that it has already. */
  readonly translate: (alias: A, real: R | undefined) => Translation<R>;
  readonly copied: (real: R) => AliasObserved<A, R>["copied"];
}

/** Templates. */
export function templateAliases(
  { templates }: ExtensionCaches,
  aliases: AliasCaches,
): AliasKind<SandboxTemplateAlias, SandboxTemplate> {
  return {
    aliasResource: sandboxTemplateAliases,
    realResource: sandboxTemplates,
    aliases: aliases.templates,
    reals: templates,
    readyType: "PolicyReady",
    translate: (alias) => ({ kind: "spec", spec: templateSpecOf(alias) }),
    copied: () => ({}),
  };
}

/** Pools. */
export function poolAliases(
  { pools }: ExtensionCaches,
  aliases: AliasCaches,
): AliasKind<SandboxWarmPoolAlias, SandboxWarmPool> {
  return {
    aliasResource: sandboxWarmPoolAliases,
    realResource: sandboxWarmPools,
    aliases: aliases.pools,
    reals: pools,
    readyType: "Ready",
    translate: (alias) => ({ kind: "spec", spec: poolSpecOf(alias) }),
    copied: ({ status: { replicas, readyReplicas } = {} }) => ({
      ...(replicas !== undefined && { replicas }),
      ...(readyReplicas !== undefined && { readyReplicas }),
    }),
  };
}

/** Claims, out of a pool of their template. */
export function claimAliases(
  extensions: ExtensionCaches,
  aliases: AliasCaches,
): AliasKind<SandboxClaimAlias, SandboxClaim> {
  return {
    aliasResource: sandboxClaimAliases,
    realResource: sandboxClaims,
    aliases: aliases.claims,
    reals: extensions.claims,
    readyType: "Ready",
    translate: (alias, real) =>
      // The pool is chosen once: a claim that has its sandbox stays with it.
      real === undefined ? translateClaim(alias, extensions) : { kind: "spec", spec: real.spec },
    copied: ({ status }) => (status?.sandbox === undefined ? {} : { sandbox: status.sandbox }),
  };
}

function translateClaim(alias: SandboxClaimAlias, { templates, pools }: ExtensionCaches): Translation<SandboxClaim> {
  const key = scoped(alias, alias.spec.template);
  const template = templates.get(key);
  if (template === undefined || template.metadata.deletionTimestamp !== undefined) {
    const message = `SandboxTemplate "${alias.spec.template}" not found`;
    return { kind: "problem", problem: { reason: "TemplateNotFound", message } };
  }
  const present = choosePool(pools.byIndex(byTemplate, key));
  if (present !== undefined) return { kind: "spec", spec: claimSpecOf(present) };
  const pool = shadowPoolOf(template);
  return { kind: "spec", spec: claimSpecOf(pool), pool };
}
