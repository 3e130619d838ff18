import type { Condition, PersistentVolume, Sandbox, SandboxSnapshot, SnapshotReason } from "@agent-sandbox/api";
import {
  ignore,
  keyOf,
  namespacedKey,
  persistentVolumeClaims,
  recalledArchiveOf,
  sandboxClaimName,
  sandboxSnapshots,
  snapshotState,
  uidOf,
  upsertCondition,
} from "@agent-sandbox/api";
import { type Controller, type ControllerTelemetry, defineController, done, type Outcome } from "@agent-sandbox/kube";
import type { NodeCaches } from "../node-caches.ts";
import type { PodContext } from "../pods/pod-context.ts";
import type { PodRecord } from "../pods/pod-record.ts";
import type { SnapshotRecord } from "../pods/snapshot-record.ts";
import { claimHostId } from "../volumes/plan-volumes.ts";
import { discardSnapshot } from "./discard-snapshot.ts";
import { planSource, type SourceQuestion } from "./plan-source.ts";
import { isFinal, type Takeable, takeSnapshot } from "./take-snapshot.ts";

/** Snapshots taken at once: each writes as fast as the disk does. */
const workers = 2;

/** Longer than the disk takes to copy what a machine's memory holds. */
const passTimeoutMs = 30 * 60_000;

/** Before a Sandbox that starts, ends or falls asleep is looked at again. */
const lookAgainMs = 250;

/** Takes snapshots of the Sandboxes whose files are on this node, and removes what has no object any more. Keys are snapshots. */
export function snapshotController(
  context: PodContext,
  caches: Pick<NodeCaches, "snapshots" | "sandboxes" | "volumes">,
  telemetry: ControllerTelemetry,
): Controller {
  const { snapshots } = caches;
  return defineController({
    name: "node-snapshots",
    clock: context.clock,
    telemetry,
    workers,
    passTimeoutMs,
    caches: [snapshots, caches.sandboxes],
    observe: (queue) => {
      const add = (snapshot: SandboxSnapshot): void => queue.add(keyOf(snapshot));
      snapshots.addHandler({ onAdd: add, onUpdate: (_old, snapshot) => add(snapshot), onDelete: add });
      const pending = ({ metadata }: Sandbox): readonly SandboxSnapshot[] =>
        snapshots.byIndex("sandbox", namespacedKey(metadata.namespace, metadata.name));
      caches.sandboxes.addHandler({ onUpdate: (_old, sandbox) => pending(sandbox).forEach(add) });
      for (const { namespace, name } of context.snapshots.all()) queue.add(namespacedKey(namespace, name));
    },
    reconcile: (key, signal) => reconcile(context, caches, key, signal),
  });
}

async function reconcile(
  context: PodContext,
  caches: Pick<NodeCaches, "snapshots" | "sandboxes" | "volumes">,
  key: string,
  signal: AbortSignal,
): Promise<Outcome> {
  const snapshot = caches.snapshots.get(key);
  await removeUnwanted(context, key, snapshot, signal);
  if (snapshot === undefined || snapshot.metadata.deletionTimestamp !== undefined) return done;
  const { state } = snapshotState(snapshot);
  const { nodeName } = snapshot.status ?? {};
  if (state === "ready" || state === "failed") return done;
  if (nodeName !== undefined && nodeName !== context.config.nodeName) return done;
  const record = context.snapshots.get(uidOf(snapshot));
  // Taken by an agent that was killed before it could say so.
  if (record?.state === "ready") return tellReady(context, snapshot, record, signal);
  // Its files come out of an archive, and the record with them.
  if (recalledArchiveOf(snapshot) !== undefined) return done;
  const sandbox = caches.sandboxes.get(namespacedKey(snapshot.metadata.namespace, snapshot.spec.sandboxName));
  const meant = snapshot.status?.sandboxUID;
  if (sandbox === undefined || (meant !== undefined && meant !== uidOf(sandbox)))
    return nodeName === undefined ? done : tellFailed(context, snapshot, "the Sandbox was deleted", signal);
  const claims = await claimsOf(context, caches.volumes.list(), sandbox, signal);
  return context.turns.run(uidOf(sandbox), () => takeFrom(context, { snapshot, sandbox, claims }, signal));
}

/** What this node has under a name and the API has not, or has failed. */
async function removeUnwanted(
  context: PodContext,
  key: string,
  snapshot: SandboxSnapshot | undefined,
  signal: AbortSignal,
): Promise<void> {
  for (const record of context.snapshots.all()) {
    if (namespacedKey(record.namespace, record.name) !== key) continue;
    const isWanted = snapshot?.metadata.uid === record.uid && snapshotState(snapshot).state !== "failed";
    if (!isWanted) await discardSnapshot(context, record, signal);
  }
}

async function takeFrom(
  context: PodContext,
  { snapshot, sandbox, claims }: Pick<SourceQuestion, "snapshot" | "sandbox" | "claims">,
  signal: AbortSignal,
): Promise<Outcome> {
  const isClaimed = snapshot.status?.nodeName !== undefined;
  const source = planSource({
    snapshot,
    sandbox,
    records: recordsOf(context, uidOf(sandbox)),
    layers: await context.host.listWritableLayers(signal),
    claims,
    isWhole: (record) => isWhole(context, record),
  });
  switch (source.from) {
    case "elsewhere":
      return isClaimed ? tellFailed(context, snapshot, "the files of the Sandbox are gone", signal) : done;
    case "moving":
      return { kind: "requeue-after", afterMs: lookAgainMs };
    case "refused": {
      const claimed = isClaimed ? snapshot : await claim(context, snapshot, sandbox, signal);
      return tellFailed(context, claimed, source.message, signal);
    }
    case "running":
    case "hibernated":
    case "files": {
      const claimed = isClaimed ? snapshot : await claim(context, snapshot, sandbox, signal);
      return takeClaimed(context, claimed, source, signal);
    }
    default:
      return source satisfies never;
  }
}

async function takeClaimed(
  context: PodContext,
  snapshot: SandboxSnapshot,
  source: Takeable,
  signal: AbortSignal,
): Promise<Outcome> {
  const left = context.snapshots.get(uidOf(snapshot));
  if (left !== undefined) await discardSnapshot(context, left, signal);
  try {
    const record = await takeSnapshot(context, snapshot, source, signal);
    return await tellReady(context, snapshot, record, signal);
  } catch (error) {
    if (!isFinal(error)) throw error;
    return tellFailed(context, snapshot, error.message, signal);
  }
}

/**
 * What the Sandbox's own claims are called on the host, by template. A node reads the claims that its pods name, and a Sandbox that sleeps has no pod: the
 * volume that is bound to a claim tells as much.
 */
async function claimsOf(
  { client }: PodContext,
  volumes: readonly PersistentVolume[],
  { metadata, spec }: Sandbox,
  signal: AbortSignal,
): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const { namespace = "" } = metadata;
  for (const template of spec.volumeClaimTemplates ?? []) {
    const name = template.metadata?.name ?? "";
    const key = { namespace, name: sandboxClaimName(name, metadata.name) };
    const uid =
      boundClaimUid(volumes, key) ??
      (await client.get(persistentVolumeClaims, key, { signal }).catch(ignore("NotFound", "Forbidden")))?.metadata.uid;
    if (uid !== undefined) found.set(name, claimHostId(uid));
  }
  return found;
}

function boundClaimUid(
  volumes: readonly PersistentVolume[],
  claim: { readonly namespace: string; readonly name: string },
): string | undefined {
  const bound = volumes.find(({ spec, status }) => {
    const { namespace, name } = spec?.claimRef ?? {};
    return status?.phase === "Bound" && namespace === claim.namespace && name === claim.name;
  });
  return bound?.spec?.claimRef?.uid;
}

/** The pod that the Sandbox has comes before the one whose memory was saved. */
function recordsOf({ records }: PodContext, sandboxUid: string): PodRecord[] {
  const own = records.all().filter((record) => record.sandboxUid === sandboxUid);
  return own.sort((a, b) => Number(a.isHibernated === true) - Number(b.isHibernated === true));
}

function isWhole({ exits, sleep }: PodContext, record: PodRecord): boolean {
  const { saved, isFalling } = sleep.of(record.uid);
  if (!record.isPrepared || record.restore?.state === "restoring" || saved !== undefined) return false;
  if (isFalling === true || sleep.isUnsure(record.uid)) return false;
  const runs = Object.values(record.containers).filter(({ end }) => end === undefined);
  return (
    runs.length > 0 &&
    // An agent that was killed during a start may have written down no time for it; what runs is what the runtime says.
    runs.every(({ hostId, stopping }) => stopping === undefined && exits.states.get(hostId)?.status === "running")
  );
}

/** Says that this node takes the snapshot, unless another one was first. */
function claim(
  context: PodContext,
  snapshot: SandboxSnapshot,
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<SandboxSnapshot> {
  const { name, uid } = sandbox.status?.restoredFrom ?? {};
  return writeStatus(context, snapshot, signal, {
    nodeName: context.config.nodeName,
    sandboxUID: uidOf(sandbox),
    ...(name !== undefined && uid !== undefined && { parent: { name, uid } }),
    conditions: condition(context, snapshot, "SnapshotSaving", "the node saves the Sandbox"),
  });
}

async function tellReady(
  context: PodContext,
  snapshot: SandboxSnapshot,
  { result }: SnapshotRecord,
  signal: AbortSignal,
): Promise<Outcome> {
  const conditions = condition(context, snapshot, "SnapshotReady", "everything is on disk");
  await writeStatus(context, snapshot, signal, { ...result, nodeName: context.config.nodeName, conditions });
  return done;
}

async function tellFailed(
  context: PodContext,
  snapshot: SandboxSnapshot,
  message: string,
  signal: AbortSignal,
): Promise<Outcome> {
  await writeStatus(context, snapshot, signal, { conditions: condition(context, snapshot, "SnapshotFailed", message) });
  return done;
}

function condition(
  { clock }: PodContext,
  { metadata, status }: SandboxSnapshot,
  reason: SnapshotReason,
  message: string,
): Condition[] {
  const isTrue = reason === "SnapshotReady";
  const observedGeneration = metadata.generation ?? 0;
  const verdict = { type: "Ready", status: isTrue ? "True" : "False", reason, message, observedGeneration } as const;
  return [...upsertCondition(status?.conditions ?? [], verdict, clock.nowMs())];
}

/** The version that was read makes the write fail where another has written since; a snapshot that is gone has nothing to be told. */
async function writeStatus(
  { client }: PodContext,
  snapshot: SandboxSnapshot,
  signal: AbortSignal,
  status: Partial<NonNullable<SandboxSnapshot["status"]>>,
): Promise<SandboxSnapshot> {
  const { namespace = "", name, uid, resourceVersion, generation } = snapshot.metadata;
  const body = { metadata: { uid, resourceVersion }, status: { observedGeneration: generation, ...status } };
  const written = await client
    .patch(sandboxSnapshots, { namespace, name }, { type: "merge", body }, { subresource: "status", signal })
    .catch(ignore("NotFound"));
  return written ?? snapshot;
}
