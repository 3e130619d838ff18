import type { Sandbox, SandboxWarmPool } from "@agent-sandbox/api";
import {
  controllerReference,
  formatTimestamp,
  ignore,
  isReasonOf,
  labelKeys,
  namespacedKey,
  sandboxes,
  sandboxWarmPools,
  uidOf,
  withReference,
} from "@agent-sandbox/api";
import { isAnswered } from "../answered.ts";
import type { ExtensionContext } from "../extension-context.ts";
import { memberName } from "./member.ts";
import type { MemberDeletion } from "./member-state.ts";
import type { PoolMemory } from "./pool-memory.ts";
import { type BatchResult, slowStart } from "./slow-start.ts";

/** A suffix has 27 to the 5th values: a fourth collision in a row is more likely a bug than chance. */
const nameTriesMax = 4;

/** Deletes members that are still what they were when it was decided: one that a claim took meanwhile stays. */
export function applyDeletions(
  { client, caches, clock }: ExtensionContext,
  deletions: readonly MemberDeletion[],
  signal: AbortSignal,
): Promise<BatchResult> {
  const remove = async (index: number): Promise<void> => {
    const sandbox = deletions[index]?.sandbox;
    if (sandbox === undefined) return;
    const { name, namespace = "", resourceVersion } = sandbox.metadata;
    try {
      const preconditions = {
        uid: uidOf(sandbox),
        ...(resourceVersion === undefined ? {} : { resourceVersion }),
      };
      await client.delete(sandboxes, { namespace, name }, { ...preconditions, signal });
      caches.sandboxes.deleted(sandbox, formatTimestamp(clock.nowMs()));
    } catch (error) {
      if (isReasonOf(error, "NotFound")) return caches.sandboxes.gone(sandbox);
      // A conflict means that it changed since the plan was made: a claim may have taken it. The next pass decides again.
      throw error;
    }
  };
  return slowStart(deletions.length, remove, signal);
}

/** Creates members with slow start. A create without an answer is remembered by name, to be looked up before the next. */
export function applyCreations(
  context: ExtensionContext,
  pool: SandboxWarmPool,
  { count, build, memory }: { count: number; build: (name: string) => Sandbox; memory: PoolMemory },
  signal: AbortSignal,
): Promise<BatchResult> {
  const { client, caches, metrics, random } = context;
  const labels = { namespace: pool.metadata.namespace ?? "", warmpool_name: pool.metadata.name };
  const create = async (): Promise<void> => {
    for (let attempt = 1; ; attempt++) {
      const name = memberName(pool.metadata.name, random);
      try {
        memory.unresolved.add(name);
        caches.sandboxes.wrote(await client.create(sandboxes, build(name), { signal }));
        memory.unresolved.delete(name);
        metrics.poolCreations.inc({ ...labels, outcome: "created" });
        return;
      } catch (error) {
        if (isAnswered(error)) memory.unresolved.delete(name);
        if (isReasonOf(error, "AlreadyExists") && attempt < nameTriesMax) continue;
        metrics.poolCreations.inc({ ...labels, outcome: "failed" });
        throw error;
      }
    }
  };
  return slowStart(count, create, signal);
}

/** Settles creates that had no answer by asking for them by name. */
export async function resolveCreations(
  { client, caches }: ExtensionContext,
  pool: SandboxWarmPool,
  memory: PoolMemory,
  signal: AbortSignal,
): Promise<void> {
  const namespace = pool.metadata.namespace ?? "";
  for (const name of memory.unresolved) {
    if (caches.sandboxes.get(namespacedKey(namespace, name)) === undefined) {
      const found = await client.get(sandboxes, { namespace, name }, { signal }).catch(ignore("NotFound"));
      if (found !== undefined) caches.sandboxes.wrote(found);
    }
    memory.unresolved.delete(name);
  }
}

/** Adopts an orphan or marks a member as warm, against the version that was judged. */
export async function applyRepair(
  { client, caches }: ExtensionContext,
  pool: SandboxWarmPool,
  { sandbox, adopt }: { sandbox: Sandbox; adopt: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { name, namespace = "", uid, resourceVersion } = sandbox.metadata;
  const reference = controllerReference(sandboxWarmPools, pool);
  const metadata = {
    uid,
    resourceVersion,
    labels: { [labelKeys.launchType]: "warm" },
    ...(adopt ? { ownerReferences: withReference(sandbox.metadata.ownerReferences, reference) } : {}),
  };
  const patched = await client
    .patch(sandboxes, { namespace, name }, { type: "merge", body: { metadata } }, { signal })
    .catch(ignore("NotFound"));
  if (patched !== undefined) caches.sandboxes.wrote(patched);
}
