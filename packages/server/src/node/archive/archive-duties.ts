import type { ArchiveReason, Sandbox, SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import {
  archiveState,
  asObject,
  ignore,
  isJsonObject,
  keyOf,
  namespacedKey,
  sandboxArchives,
  sandboxSnapshots,
  uidOf,
  upsertCondition,
} from "@agent-sandbox/api";
import { isKeptFor } from "../pods/kept-layer.ts";
import type { PodContext } from "../pods/pod-context.ts";
import type { ArchiveEntry, ArchiveWork } from "./archive-work.ts";
import { type ArchiveDuty, planDuty } from "./plan-duty.ts";

/** What the duties are done with. */
export interface ArchiveDesk {
  readonly client: PodContext["client"];
  readonly host: Pick<PodContext["host"], "listWritableLayers">;
  readonly clock: PodContext["clock"];
  readonly nodeName: string;
  /** By key, as the caches have them. */
  readonly sandbox: (key: string) => Sandbox | undefined;
  readonly snapshot: (key: string) => SandboxSnapshot | undefined;
  /** Absent: this engine was given no archive. */
  readonly work: ArchiveWork | undefined;
}

/** Does for an archive what this node has to do next, and says on it what keeps it from that. */
export async function doDuty(desk: ArchiveDesk, archive: SandboxArchive, signal: AbortSignal): Promise<void> {
  const { work } = desk;
  const { namespace } = archive.metadata;
  const duty = planDuty({
    archive,
    nodeName: desk.nodeName,
    hasArchive: work !== undefined,
    hasFiles: await hasFiles(desk, archive, signal),
    snapshot: desk.snapshot(namespacedKey(namespace, archive.status?.snapshot?.name ?? "")),
  });
  if (duty.do === "nothing") return;
  if (duty.do === "refuse" || work === undefined) {
    const message = "the engine of the node that has the files was started without --archive";
    await tell(desk, archive, { reason: "NoArchive", message }, signal);
    return;
  }
  try {
    await fulfil({ ...desk, work }, archive, duty, signal);
  } catch (error) {
    if (signal.aborted) throw error;
    const reason = duty.do === "bring-back" ? "RecallFailed" : "StoreFailed";
    await tell(desk, archive, { reason, message: error instanceof Error ? error.message : String(error) }, signal);
    throw error;
  }
  return;
}

/** Only an archive that no node has yet is of interest for where its Sandbox's files are. */
async function hasFiles(desk: ArchiveDesk, archive: SandboxArchive, signal: AbortSignal): Promise<boolean> {
  if (archive.status?.nodeName !== undefined) return false;
  const sandbox = desk.sandbox(keyOf(archive));
  if (sandbox === undefined) return false;
  const layers = await desk.host.listWritableLayers(signal);
  return layers.some(({ key }) => isKeptFor(key, uidOf(sandbox)));
}

type EquippedDesk = ArchiveDesk & { readonly work: ArchiveWork };

async function fulfil(
  desk: EquippedDesk,
  archive: SandboxArchive,
  duty: Exclude<ArchiveDuty, { do: "nothing" | "refuse" }>,
  signal: AbortSignal,
): Promise<void> {
  switch (duty.do) {
    case "claim":
      return write(desk, archive, { nodeName: desk.nodeName }, signal);
    case "adopt":
      return adopt(desk, archive, duty.archiveID, signal);
    case "store":
      return store(desk, archive, duty, signal);
    case "bring-back":
      return fetchBack(desk, archive, duty, signal);
    case "remove":
      return remove(desk, archive, duty.archiveIDs, signal);
  }
}

async function adopt(desk: EquippedDesk, archive: SandboxArchive, id: string, signal: AbortSignal): Promise<void> {
  const entry = (await desk.work.list(signal)).find((each) => each.id === id);
  if (entry === undefined || !isOf(entry, archive)) {
    const message = `the archive has no "${id}" of a Sandbox of this namespace and name`;
    return tell(desk, archive, { reason: "SandboxNotFound", message }, signal);
  }
  const { sandboxUID, archivedAt, storedBytes, contentBytes, address, sandbox } = entry;
  const found = { sandboxUID, archivedAt, storedBytes, contentBytes, address: [...address], sandbox: { ...sandbox } };
  await write(desk, archive, { nodeName: desk.nodeName, ...found }, signal);
}

/** The content of one namespace is never brought into another, nor under another name. */
function isOf({ namespace, name }: ArchiveEntry, { metadata }: SandboxArchive): boolean {
  return namespace === metadata.namespace && name === metadata.name;
}

async function store(
  desk: EquippedDesk,
  archive: SandboxArchive,
  { archiveID, snapshot }: Extract<ArchiveDuty, { do: "store" }>,
  signal: AbortSignal,
): Promise<void> {
  const { sandboxUID = "", sandbox, address = [] } = archive.status ?? {};
  if (!isJsonObject(sandbox)) throw new Error("status.sandbox is not there");
  // The same in every repetition: what is in the index may be of an agent that was killed.
  const archivedAt = snapshot.metadata.creationTimestamp ?? "";
  const { namespace = "", name } = archive.metadata;
  const entry = { id: archiveID, namespace, name, sandboxUID, archivedAt, sandbox: asObject(sandbox), address };
  const sizes = await desk.work.store(entry, uidOf(snapshot), signal);
  const latest = await reread(desk, archive, signal);
  if (latest?.status?.archiveID === archiveID) await write(desk, latest, { ...sizes, archivedAt }, signal);
}

/** The files are there before the snapshot names its node: from then on it is one that this node has taken. */
async function fetchBack(
  desk: EquippedDesk,
  archive: SandboxArchive,
  { archiveID, snapshot }: Extract<ArchiveDuty, { do: "bring-back" }>,
  signal: AbortSignal,
): Promise<void> {
  const entry = await desk.work.fetch(archiveID, uidOf(snapshot), signal);
  if (!isOf(entry, archive)) throw new Error(`the archive has "${archiveID}" of ${entry.namespace}/${entry.name}`);
  const { namespace = "", name, uid } = snapshot.metadata;
  const body = { metadata: { uid }, status: { nodeName: desk.nodeName, sandboxUID: entry.sandboxUID } };
  await desk.client
    .patch(sandboxSnapshots, { namespace, name }, { type: "merge", body }, { subresource: "status", signal })
    .catch(ignore("NotFound"));
}

async function remove(
  desk: EquippedDesk,
  archive: SandboxArchive,
  ids: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  for (const id of ids) await desk.work.remove(id, signal);
  const latest = await reread(desk, archive, signal);
  const left = (latest?.status?.discarded ?? []).filter((id) => !ids.includes(id));
  if (latest !== undefined) await write(desk, latest, { discarded: left }, signal);
}

/** The archive as it is by now: what was done took long, and its status has been written since. */
async function reread(
  { client }: ArchiveDesk,
  { metadata }: SandboxArchive,
  signal: AbortSignal,
): Promise<SandboxArchive | undefined> {
  const { namespace = "", name, uid } = metadata;
  const latest = await client.get(sandboxArchives, { namespace, name }, { signal }).catch(ignore("NotFound"));
  return latest?.metadata.uid === uid ? latest : undefined;
}

/** Says why it does not go on; once for each reason and text, because every write is an event that begins the next pass. */
async function tell(
  desk: ArchiveDesk,
  archive: SandboxArchive,
  verdict: { readonly reason: ArchiveReason; readonly message: string },
  signal: AbortSignal,
): Promise<void> {
  const latest = await reread(desk, archive, signal);
  if (latest === undefined) return;
  const said = archiveState(latest);
  if (said.reason === verdict.reason && said.message === verdict.message) return;
  const observedGeneration = latest.metadata.generation ?? 0;
  const condition = { type: "Ready", status: "False", ...verdict, observedGeneration } as const;
  const conditions = [...upsertCondition(latest.status?.conditions ?? [], condition, desk.clock.nowMs())];
  await write(desk, latest, { conditions }, signal);
}

/** The version that was read makes the write fail where another has written since; an archive that is gone has nothing to be told. */
async function write(
  { client }: ArchiveDesk,
  { metadata }: SandboxArchive,
  status: Partial<NonNullable<SandboxArchive["status"]>>,
  signal: AbortSignal,
): Promise<void> {
  const { namespace = "", name, uid, resourceVersion } = metadata;
  const body = { metadata: { uid, resourceVersion }, status };
  await client
    .patch(sandboxArchives, { namespace, name }, { type: "merge", body }, { subresource: "status", signal })
    .catch(ignore("NotFound"));
}
