import type { Alias, Condition, SandboxClaim, SandboxTemplate, SandboxWarmPool } from "@agent-sandbox/api";
import {
  controllerReference,
  extensionsGroup,
  findCondition,
  isControlledBy,
  type Resource,
  semanticEqual,
  upsertCondition,
} from "@agent-sandbox/api";

/** An object that an alias stands for. */
export type Real = SandboxTemplate | SandboxClaim | SandboxWarmPool;

/** Why an alias has no object. */
export interface Problem {
  readonly reason: "NameTaken" | "TemplateNotFound" | "Refused";
  readonly message: string;
}

/** What an alias means: the spec of its object, with the pool that a claim needs first, or why nothing can be made of it. */
export type Translation<R extends Real> =
  | { readonly kind: "spec"; readonly spec: R["spec"]; readonly pool?: SandboxWarmPool }
  | { readonly kind: "problem"; readonly problem: Problem };

/** Everything a pass over an alias looks at. */
export interface AliasObserved<A extends Alias, R extends Real> {
  readonly alias: A;
  readonly aliasResource: Resource<A>;
  readonly realResource: Resource<R>;
  /** The object of the same name, made from this alias or not. */
  readonly real: R | undefined;
  readonly translation: Translation<R>;
  /** The condition of the object that is the alias's Ready. */
  readonly readyType: "Ready" | "PolicyReady";
  /** Fields of the object's status that the alias shows too. */
  readonly copied: Partial<NonNullable<A["status"]>>;
  readonly nowMs: number;
}

/** A write that an alias needs. */
export type AliasAction<R extends Real> =
  | { readonly do: "create-pool"; readonly pool: SandboxWarmPool }
  | { readonly do: "create"; readonly object: R }
  | { readonly do: "update"; readonly object: R }
  /** Its object, which has this uid, was deleted. */
  | { readonly do: "delete-alias"; readonly lostUid: string };

/** What a pass decides; without a status, the next pass reports. */
export interface AliasPlan<A extends Alias, R extends Real> {
  readonly actions: readonly AliasAction<R>[];
  readonly status?: NonNullable<A["status"]>;
}

/**
 * An alias and its object are one thing with two names: what is written to the alias reaches the object, and the end of either is the end of
 * both. An object that was not made from this alias is never touched.
 */
export function planAlias<A extends Alias, R extends Real>(observed: AliasObserved<A, R>): AliasPlan<A, R> {
  const { alias, aliasResource, real, translation } = observed;
  const knownUid = alias.status?.uid;
  if (knownUid !== undefined && real?.metadata.uid !== knownUid)
    return { actions: [{ do: "delete-alias", lostUid: knownUid }] };
  if (real === undefined) {
    if (translation.kind === "problem") return { actions: [], status: problemStatus(observed, translation.problem) };
    const before = translation.pool === undefined ? [] : [{ do: "create-pool", pool: translation.pool } as const];
    return { actions: [...before, { do: "create", object: newObject(observed, translation.spec) }] };
  }
  if (!isControlledBy(real, aliasResource, alias))
    return { actions: [], status: problemStatus(observed, nameTaken(observed)) };
  return { actions: updateOf(real, observed), status: translatedStatus(real, observed) };
}

/** Written once for each generation, so that what somebody changes on the object itself stays until the alias changes. */
function updateOf<A extends Alias, R extends Real>(
  real: R,
  { alias, translation }: AliasObserved<A, R>,
): AliasAction<R>[] {
  if (translation.kind === "problem" || real.metadata.deletionTimestamp !== undefined) return [];
  if (alias.status?.observedGeneration === alias.metadata.generation) return [];
  const spec = { ...real.spec, ...translation.spec };
  return semanticEqual(spec, real.spec) ? [] : [{ do: "update", object: { ...real, spec } }];
}

function newObject<A extends Alias, R extends Real>(
  { alias, aliasResource, realResource }: AliasObserved<A, R>,
  spec: R["spec"],
): R {
  const { name, namespace = "" } = alias.metadata;
  const object = {
    apiVersion: `${realResource.group}/${realResource.version}`,
    kind: realResource.kind,
    metadata: { name, namespace, ownerReferences: [controllerReference(aliasResource, alias)] },
    spec,
  };
  return object as R;
}

function nameTaken<A extends Alias, R extends Real>({ alias, realResource }: AliasObserved<A, R>): Problem {
  const message = `${realResource.kind} "${alias.metadata.name}" of ${extensionsGroup} exists and was not made from this object, so it is left alone; choose another name or delete it`;
  return { reason: "NameTaken", message };
}

/** The status of an alias that has no object. */
export function problemStatus<A extends Alias, R extends Real>(
  observed: AliasObserved<A, R>,
  { reason, message }: Problem,
): NonNullable<A["status"]> {
  const verdict = { status: "False", reason, message } as const;
  return { ...observed.alias.status, conditions: conditionsOf(observed, verdict, verdict) };
}

function translatedStatus<A extends Alias, R extends Real>(
  real: R,
  observed: AliasObserved<A, R>,
): NonNullable<A["status"]> {
  const { alias, realResource, readyType, copied } = observed;
  const message = `${realResource.kind} "${alias.metadata.name}" of ${extensionsGroup} stands for this object`;
  const ready = findCondition<Condition>(real.status?.conditions, readyType);
  const { uid = "" } = real.metadata;
  const observedGeneration = alias.metadata.generation ?? 0;
  const conditions = conditionsOf(
    observed,
    { status: "True", reason: "Translated", message },
    ready ?? { status: "False", reason: "Pending", message: `${realResource.kind} has no condition ${readyType} yet` },
  );
  return { ...copied, uid, observedGeneration, conditions };
}

type Verdict = Pick<Condition, "status" | "reason" | "message">;

function conditionsOf<A extends Alias, R extends Real>(
  { alias, nowMs }: AliasObserved<A, R>,
  translated: Verdict,
  ready: Verdict,
): Condition[] {
  const observedGeneration = alias.metadata.generation ?? 0;
  let conditions: readonly Condition[] = alias.status?.conditions ?? [];
  for (const [type, { status, reason, message }] of [
    ["Translated", translated],
    ["Ready", ready],
  ] as const)
    conditions = upsertCondition(conditions, { type, status, reason, message, observedGeneration }, nowMs);
  return [...conditions];
}
