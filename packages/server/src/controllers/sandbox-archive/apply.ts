import type { Sandbox, SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import {
  annotationKeys,
  apiVersionOf,
  archiveFinalizer,
  controllerReference,
  ignore,
  sandboxArchives,
  sandboxes,
  sandboxSnapshots,
  uidOf,
} from "@agent-sandbox/api";
import { annotate } from "../sandbox-lifecycle/apply.ts";
import type { SandboxContext } from "../sandbox-lifecycle/context.ts";
import { statusPatch } from "../status-patch.ts";
import type { ArchivePlan } from "./archive-plan.ts";
import type { ArchiveStatus } from "./archive-status.ts";

/** Carries out what a pass decided; what somebody else has written meanwhile fails with a conflict, and the next pass decides again. */
export async function applyArchive(
  context: SandboxContext,
  archive: SandboxArchive,
  plan: ArchivePlan,
  signal: AbortSignal,
): Promise<void> {
  switch (plan.do) {
    case "wait":
      return;
    case "prepare":
      return patchMetadata(context, archive, plan.metadata, signal);
    case "tell":
      return writeStatus(context, archive, plan.status, signal);
    case "make-snapshot":
      return makeSnapshot(context, archive, plan, signal);
    case "delete-snapshot":
      return deleteSnapshot(context, plan.snapshot, signal);
    case "delete-sandbox":
      return deleteSandbox(context, plan.sandbox, signal);
    case "make-sandbox":
      return makeSandbox(context, plan.sandbox, signal);
    case "call-off":
      await annotate(
        context,
        plan.sandbox,
        { [annotationKeys.archiveCalledOff]: archive.status?.archiveID ?? "" },
        signal,
      );
      return writeStatus(context, archive, plan.status, signal);
    case "delete-archive":
      return deleteArchive(context, archive, signal);
    case "release": {
      const finalizers = (archive.metadata.finalizers ?? []).filter((each) => each !== archiveFinalizer);
      return patchMetadata(context, archive, { finalizers }, signal);
    }
  }
}

const addressed = ({ metadata }: { metadata: SandboxArchive["metadata"] }) => {
  return { namespace: metadata.namespace ?? "", name: metadata.name };
};

async function patchMetadata(
  { client, caches }: SandboxContext,
  archive: SandboxArchive,
  fields: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
): Promise<void> {
  const { uid, resourceVersion } = archive.metadata;
  const patch = { type: "merge" as const, body: { metadata: { ...fields, uid, resourceVersion } } };
  const written = await client.patch(sandboxArchives, addressed(archive), patch, { signal }).catch(ignore("NotFound"));
  // Without its last finalizer an object that is being deleted is gone with the answer.
  const isGone = written?.metadata.deletionTimestamp !== undefined && !written.metadata.finalizers?.length;
  if (written === undefined || isGone) caches.archives.gone(archive);
  else caches.archives.wrote(written);
}

async function writeStatus(
  { client, caches }: SandboxContext,
  archive: SandboxArchive,
  status: ArchiveStatus,
  signal: AbortSignal,
): Promise<void> {
  const patch = statusPatch(archive.status, status);
  if (patch === undefined) return;
  const { uid, resourceVersion } = archive.metadata;
  const body = { metadata: { uid, resourceVersion }, status: patch };
  const written = await client
    .patch(sandboxArchives, addressed(archive), { type: "merge", body }, { subresource: "status", signal })
    .catch(ignore("NotFound"));
  if (written !== undefined) caches.archives.wrote(written);
}

/** The name is that of the attempt: one that is there already is judged by the next pass. */
async function makeSnapshot(
  { client, caches }: SandboxContext,
  archive: SandboxArchive,
  { name, recallOf }: Extract<ArchivePlan, { do: "make-snapshot" }>,
  signal: AbortSignal,
): Promise<void> {
  const { namespace = "" } = archive.metadata;
  const snapshot: SandboxSnapshot = {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: {
      name,
      namespace,
      ownerReferences: [controllerReference(sandboxArchives, archive)],
      ...(recallOf !== undefined && { annotations: { [annotationKeys.recallOf]: recallOf } }),
    },
    spec: { sandboxName: archive.metadata.name },
  };
  const made = await client.create(sandboxSnapshots, snapshot, { signal }).catch(ignore("AlreadyExists"));
  if (made !== undefined) caches.snapshots.wrote(made);
}

async function deleteSnapshot(
  { client, caches }: SandboxContext,
  snapshot: SandboxSnapshot,
  signal: AbortSignal,
): Promise<void> {
  const options = { uid: uidOf(snapshot), signal };
  await client.delete(sandboxSnapshots, addressed(snapshot), options).catch(ignore("NotFound"));
  caches.snapshots.gone(snapshot);
}

/** Activity, another spec or another status since it was read makes this fail: it is then looked at again. */
async function deleteSandbox({ client }: SandboxContext, sandbox: Sandbox, signal: AbortSignal): Promise<void> {
  const { resourceVersion = "" } = sandbox.metadata;
  const options = { uid: uidOf(sandbox), resourceVersion, signal };
  await client.delete(sandboxes, addressed(sandbox), options).catch(ignore("NotFound"));
}

/** A Sandbox that took the name meanwhile is judged by the next pass. */
async function makeSandbox({ client, caches }: SandboxContext, sandbox: Sandbox, signal: AbortSignal): Promise<void> {
  const made = await client
    .create(sandboxes, { ...sandbox, apiVersion: apiVersionOf(sandboxes) } as Sandbox, { signal })
    .catch(ignore("AlreadyExists"));
  if (made !== undefined) caches.sandboxes.wrote(made);
}

async function deleteArchive({ client }: SandboxContext, archive: SandboxArchive, signal: AbortSignal): Promise<void> {
  const { resourceVersion = "" } = archive.metadata;
  const options = { uid: uidOf(archive), resourceVersion, signal };
  await client.delete(sandboxArchives, addressed(archive), options).catch(ignore("NotFound"));
}
