import type { SandboxSnapshot } from "@agent-sandbox/api";
import { formatTimestamp } from "@agent-sandbox/api";
import { HostError } from "../host/host-error.ts";
import type { ClonedImage } from "../host/image-clone.ts";
import type { SavedState } from "../host/saved-state.ts";
import type { PodContext } from "../pods/pod-context.ts";
import type { PodRecord } from "../pods/pod-record.ts";
import { savedIdOf } from "../pods/pod-sleep.ts";
import { type SnapshotRecord, type SnapshotResult, snapshotSavedId } from "../pods/snapshot-record.ts";
import { discardSnapshot, goOn } from "./discard-snapshot.ts";
import type { Source } from "./plan-source.ts";

/** How long those who write to a file system may wait for its copy; a paused sandbox writes nothing. */
const pauseMaxMs = 60_000;

/** How long it may take to put back what was stopped; it is also put back by an agent that is being stopped itself. */
const putBackMaxMs = 60_000;
const afterwards = (): AbortSignal => AbortSignal.timeout(putBackMaxMs);

/** What there is to take. */
export type Takeable = Extract<Source, { readonly images: unknown }>;

/**
 * Takes a snapshot as a whole, or throws and leaves nothing of it; the Sandbox stands then as it stood before. Preconditions: no part of an earlier attempt is there, and the
 * caller has the Sandbox's turn.
 */
export async function takeSnapshot(
  context: PodContext,
  snapshot: SandboxSnapshot,
  source: Takeable,
  signal: AbortSignal,
): Promise<SnapshotRecord> {
  const begun = beginning(snapshot, source);
  await context.snapshots.save(begun);
  try {
    const taken = await take(context, begun, source, signal);
    await context.snapshots.save(taken);
    return taken;
  } catch (error) {
    await discardSnapshot(context, begun, afterwards());
    throw error;
  }
}

function beginning({ metadata }: SandboxSnapshot, source: Takeable): SnapshotRecord {
  const { uid = "", namespace = "", name } = metadata;
  const record = source.from === "files" ? undefined : source.record;
  const all = Object.values(record?.containers ?? {});
  const runs = all.filter(({ end }) => end === undefined);
  return {
    version: 1,
    uid,
    namespace,
    name,
    state: "saving",
    ...(source.from === "running" && { paused: rootOf(source.record) }),
    hasMemory: record !== undefined,
    images: source.images,
    runs: Object.fromEntries(runs.map((run) => [run.name, { hostId: run.hostId, attempt: run.attempt }])),
    ended: all.filter(({ end }) => end?.exitCode === 0),
  };
}

function take(
  context: PodContext,
  begun: SnapshotRecord,
  source: Takeable,
  signal: AbortSignal,
): Promise<SnapshotRecord> {
  switch (source.from) {
    case "running":
      return takeRunning(context, begun, source.record, signal);
    case "hibernated":
      return takeHibernated(context, begun, source.record, signal);
    case "files":
      return takeFiles(context, begun, signal);
    default:
      return source satisfies never;
  }
}

/** A frozen sentry cannot save itself: its processes run for the moment between, and are frozen again after it. */
async function takeRunning(
  context: PodContext,
  begun: SnapshotRecord,
  record: PodRecord,
  signal: AbortSignal,
): Promise<SnapshotRecord> {
  const { host, sleep } = context;
  const { isFrozen } = sleep.of(record.uid);
  const root = rootOf(record);
  const saved = snapshotSavedId(begun.uid);
  const probes = isFrozen
    ? []
    : Object.values(record.containers).flatMap(({ hostId }) => context.probes.get(hostId) ?? []);
  for (const runner of probes) runner.pause();
  await context.restoreTest.passed(signal);
  if (isFrozen) await host.thawCgroup({ id: record.cgroup }, signal);
  try {
    const state = await host.saveSandbox({ id: root, saved, reusable: true }, signal);
    const clones = await cloneAll(context, begun, signal);
    // A sandbox that has ended meanwhile has not stood still: its files may be of another run.
    await host.continueSandbox({ id: root }, signal);
    const standstillMs = context.clock.nowMs() - Date.parse(state.takenAt);
    return taken(begun, { state, clones, record, standstillMs, takenAt: state.takenAt });
  } catch (error) {
    // Before it is frozen again: a frozen sentry hears nothing.
    await goOn(context, root, saved, afterwards());
    throw error;
  } finally {
    for (const runner of probes) runner.resume();
    if (isFrozen) await host.freezeCgroup({ id: record.cgroup }, afterwards());
  }
}

/** Memory on disk does not change, and no pod of the Sandbox is prepared while the caller has its turn. */
async function takeHibernated(
  context: PodContext,
  begun: SnapshotRecord,
  record: PodRecord,
  signal: AbortSignal,
): Promise<SnapshotRecord> {
  const copy = { from: savedIdOf(record.sandboxUid ?? ""), to: snapshotSavedId(begun.uid) };
  const state = await context.host.copySaved(copy, signal);
  const clones = await cloneAll(context, begun, signal);
  return taken(begun, { state, clones, record, standstillMs: 0, takenAt: state.takenAt });
}

/** Each layer is of one moment; those of several containers are of one moment each. */
async function takeFiles(context: PodContext, begun: SnapshotRecord, signal: AbortSignal): Promise<SnapshotRecord> {
  const takenAt = formatTimestamp(context.clock.nowMs());
  const clones = await cloneAll(context, begun, signal);
  const standstillMs = clones.reduce((sum, { pausedMs }) => sum + pausedMs, 0);
  return taken(begun, { clones, standstillMs, takenAt });
}

async function cloneAll({ host }: PodContext, { images }: SnapshotRecord, signal: AbortSignal): Promise<ClonedImage[]> {
  return Promise.all(images.map(({ kind, from, id }) => host.cloneImage({ kind, from, to: id, pauseMaxMs }, signal)));
}

interface Taken {
  readonly clones: readonly ClonedImage[];
  readonly standstillMs: number;
  readonly takenAt: string;
  readonly state?: SavedState;
  readonly record?: PodRecord;
}

function taken(begun: SnapshotRecord, { clones, standstillMs, takenAt, state, record }: Taken): SnapshotRecord {
  const { paused: _paused, ...rest } = begun;
  const runs = Object.values(begun.runs).map(({ hostId }) => hostId);
  const root = state?.containers.find((container) => container.root && !runs.includes(container.id));
  const memorySizeBytes = state?.memoryBytes;
  const sizeBytes = clones.reduce((sum, { usedBytes }) => sum + usedBytes, memorySizeBytes ?? 0);
  const imageDigest = Object.values(record?.containers ?? {})[0]?.imageId;
  const result: SnapshotResult = {
    takenAt: formatTimestamp(Date.parse(takenAt)),
    standstillMs: Math.max(0, Math.round(standstillMs)),
    copy: clones.every(({ copy }) => copy === "reflink") ? "Reflink" : "Copy",
    sizeBytes,
    ...(memorySizeBytes !== undefined && { memorySizeBytes }),
    ...(imageDigest !== undefined && { imageDigest }),
    ...(state !== undefined && { runtimeVersion: state.runtimeVersion }),
  };
  return { ...rest, state: "ready", ...(root !== undefined && { root: root.id }), result };
}

/** The root container of a pod's sandbox. */
function rootOf({ pauseId, containers }: PodRecord): string {
  return pauseId ?? Object.values(containers)[0]?.hostId ?? "";
}

/** Whether an error is the host's last word on a snapshot, and not that the helper is away for a moment. */
export function isFinal(error: unknown): error is HostError {
  return error instanceof HostError && error.code !== "unavailable";
}
