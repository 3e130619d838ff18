import {
  type Alias,
  sandboxClaimAliases,
  sandboxTemplateAliases,
  sandboxWarmPoolAliases,
} from "@agent-sandbox/api/aliases";
import { findCondition } from "@agent-sandbox/api/condition";
import { extensionsGroup } from "@agent-sandbox/api/labels";
import type { Condition, KubeObject } from "@agent-sandbox/api/meta";
import type { Resource } from "@agent-sandbox/api/resource";
import type { Engine } from "@agent-sandbox/sdk";
import { awaitObject } from "@agent-sandbox/sdk/control/await-object";
import type { Verdict } from "@agent-sandbox/sdk/control/verdict";
import { CliError } from "../cli-error.ts";
import type { Manifest } from "./manifest.ts";

/** The kinds that articles print; the engine makes the real objects of them. */
export const aliasKinds: readonly Resource<KubeObject>[] = [
  sandboxTemplateAliases as Resource<KubeObject>,
  sandboxClaimAliases as Resource<KubeObject>,
  sandboxWarmPoolAliases as Resource<KubeObject>,
];

/** Whether objects of this resource stand for others. */
export function isAlias({ group, resource }: Pick<Resource<KubeObject>, "group" | "resource">): boolean {
  return aliasKinds.some((alias) => alias.group === group && alias.resource === resource);
}

/** Gives a pool without a name, which articles print, that of its template; everything else passes untouched. */
export function nameAlias(manifest: Manifest): Manifest {
  const { object } = manifest;
  const isPool =
    object.kind === sandboxWarmPoolAliases.kind && object.apiVersion.startsWith(`${sandboxWarmPoolAliases.group}/`);
  if (!isPool || object.metadata.name !== "") return manifest;
  const { spec } = object as KubeObject & { spec?: { template?: unknown } };
  const name = typeof spec?.template === "string" ? spec.template : "";
  return { ...manifest, object: { ...object, metadata: { ...object.metadata, name } } };
}

/** The engine translates within milliseconds; this long only where its controllers are away. */
const translationTimeoutMs = 10_000;

/** Waits until the engine has made the real object, so that the next command finds it; says what became of it. Throws where it cannot be made. */
export async function awaitTranslation(
  { client }: Engine,
  resource: Resource<KubeObject>,
  { kind, metadata }: KubeObject,
  signal: AbortSignal,
): Promise<string> {
  const { name, namespace = "", generation = 0 } = metadata;
  const translated = (object: KubeObject): Condition | undefined => {
    const found = findCondition((object as Alias).status?.conditions, "Translated");
    return (found?.observedGeneration ?? 0) >= generation ? found : undefined;
  };
  const judge = (object: KubeObject): Verdict =>
    translated(object) === undefined ? { kind: "waiting", why: "not translated yet" } : { kind: "done" };
  const timeout = AbortSignal.timeout(translationTimeoutMs);
  const either = AbortSignal.any([signal, timeout]);
  const seen = await awaitObject({ client, resource, namespace, name, judge, signal: either }).catch(
    (error: unknown) => {
      if (timeout.aborted) return undefined;
      throw error;
    },
  );
  const { reason = "Pending", message = "the engine's controllers did not answer" } = (seen && translated(seen)) ?? {};
  if (reason === "NameTaken" || reason === "Refused") throw new CliError(`${kind} ${name}: ${message}`);
  const real = `${kind} "${name}" of ${extensionsGroup}/v1beta1`;
  return reason === "Translated" ? `read as ${real}` : `becomes ${real} later: ${message}`;
}
