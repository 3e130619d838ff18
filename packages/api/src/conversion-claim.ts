import { objectUnder, readHubFields, readState, withAnnotations } from "./conversion-state.ts";
import { isJsonObject, type JsonObject, type JsonValue, ownValue } from "./json-value.ts";
import type { SandboxClaim, SandboxClaimV1alpha1, VolumeClaimTemplate } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";
import { shadowPoolPrefix } from "./shadow-pool.ts";

/** The two fields by which v1alpha1 says where a Sandbox comes from. */
interface OldReferences {
  readonly template: string;
  readonly warmpool: string | undefined;
}

/** The stored form of a v1alpha1 claim. Its references are remembered only where they cannot be derived back. */
export function claimToV1beta1(source: SandboxClaimV1alpha1): SandboxClaim {
  const { sandboxTemplateRef, warmpool, ...spec } = source.spec;
  const references: OldReferences = { template: sandboxTemplateRef.name, warmpool };
  const carried = objectUnder(readHubFields(source.metadata), "spec");
  const pool = carriedPool(carried, references) ?? poolFor(references, source);
  const derived = referencesFor(pool, undefined, source);
  const state = sameReferences(derived, references)
    ? undefined
    : JSON.stringify({ spec: { sandboxTemplateRef, warmpool } });
  const templates = carriedTemplates(carried);
  return {
    ...source,
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    metadata: withAnnotations(source.metadata, (kept) => ({
      ...kept,
      [annotationKeys.hubFields]: undefined,
      [annotationKeys.claimState]: state,
    })),
    spec: {
      warmPoolRef: { name: pool },
      ...spec,
      ...(templates === undefined ? {} : { volumeClaimTemplates: templates }),
    },
  };
}

/** The v1alpha1 view of a stored claim; what it cannot say travels in an annotation. */
export function claimToV1alpha1(source: SandboxClaim): SandboxClaimV1alpha1 {
  const { warmPoolRef, volumeClaimTemplates, ...spec } = source.spec;
  const references = referencesFor(warmPoolRef.name, readState(source.metadata, annotationKeys.claimState), source);
  const ambiguous = poolFor(references, source) !== warmPoolRef.name;
  const carried: JsonObject = {
    ...(volumeClaimTemplates === undefined
      ? {}
      : // The interfaces of built-in kinds have no index signature, although they are JSON.
        { volumeClaimTemplates: volumeClaimTemplates as unknown as JsonValue }),
    ...(ambiguous
      ? { warmPoolRef: { name: warmPoolRef.name, for: [references.template, references.warmpool ?? null] } }
      : {}),
  };
  return {
    ...source,
    apiVersion: "extensions.agents.x-k8s.io/v1alpha1",
    metadata: withAnnotations(source.metadata, (kept) => ({
      ...kept,
      [annotationKeys.claimState]: undefined,
      [annotationKeys.hubFields]: Object.keys(carried).length === 0 ? undefined : JSON.stringify({ spec: carried }),
    })),
    spec: {
      sandboxTemplateRef: { name: references.template },
      ...(references.warmpool === undefined ? {} : { warmpool: references.warmpool }),
      ...spec,
    },
  };
}

/** A carried pool name holds only while the references are still those that it was carried beside. */
function carriedPool(carried: JsonObject, references: OldReferences): string | undefined {
  const { name, for: beside } = objectUnder(carried, "warmPoolRef");
  const same = JSON.stringify(beside) === JSON.stringify([references.template, references.warmpool ?? null]);
  return typeof name === "string" && same ? name : undefined;
}

/** Anybody may write the annotation, and no schema validates it: only what has the shape of templates is taken. */
function carriedTemplates(carried: JsonObject): VolumeClaimTemplate[] | undefined {
  const templates = carried["volumeClaimTemplates"];
  const isTemplate = (item: JsonValue) => {
    if (!isJsonObject(item) || !isJsonObject(ownValue(item, "spec"))) return false;
    const metadata = ownValue(item, "metadata");
    if (metadata === undefined) return true;
    return isJsonObject(metadata) && ["string", "undefined"].includes(typeof ownValue(metadata, "name"));
  };
  if (!Array.isArray(templates) || !templates.every(isTemplate)) return undefined;
  // Checked above as far as the conversion reads it; the rest was validated when it was carried over.
  return templates as unknown as VolumeClaimTemplate[];
}

type Bound = {
  readonly metadata: { readonly name: string };
  readonly status?: { readonly sandbox?: { readonly name?: string } };
};

/** The pool that a v1alpha1 claim means: a named one, that of its warm Sandbox, or a shadow of its template. */
function poolFor(references: OldReferences, claim: Bound): string {
  const { template, warmpool } = references;
  if (isSpecific(warmpool)) return warmpool;
  const bound = claim.status?.sandbox?.name ?? "";
  return bound !== "" && bound !== claim.metadata.name ? withoutSuffix(bound) : shadowPoolPrefix + template;
}

/** The v1alpha1 references for a pool, from memory where the pool is still the one that the memory is about. */
function referencesFor(pool: string, state: JsonObject | undefined, claim: Bound): OldReferences {
  const old = readReferences(state);
  if (old === undefined) {
    if (pool.startsWith(shadowPoolPrefix))
      return { template: pool.slice(shadowPoolPrefix.length), warmpool: "default" };
    return { template: pool, warmpool: pool };
  }
  const expected = isSpecific(old.warmpool) ? old.warmpool : old.template;
  const bound = claim.status?.sandbox?.name ?? "";
  const known = [expected, shadowPoolPrefix + expected, ...(bound === "" ? [] : [bound, withoutSuffix(bound)])];
  return known.includes(pool) ? old : { template: old.template, warmpool: pool };
}

function readReferences(state: JsonObject | undefined): OldReferences | undefined {
  if (state === undefined) return undefined;
  const spec = objectUnder(state, "spec");
  const template = objectUnder(spec, "sandboxTemplateRef")["name"];
  const warmpool = spec["warmpool"];
  if (typeof template !== "string") return undefined;
  return { template, warmpool: typeof warmpool === "string" ? warmpool : undefined };
}

function sameReferences(a: OldReferences, b: OldReferences): boolean {
  return a.template === b.template && a.warmpool === b.warmpool;
}

function isSpecific(warmpool: string | undefined): warmpool is string {
  return warmpool !== undefined && warmpool !== "" && warmpool !== "none" && warmpool !== "default";
}

function withoutSuffix(name: string): string {
  const dash = name.lastIndexOf("-");
  return dash < 0 ? name : name.slice(0, dash);
}
