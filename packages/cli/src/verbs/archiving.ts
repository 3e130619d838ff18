import { ignore } from "@agent-sandbox/api/api-error";
import { type ArchiveReason, archiveState } from "@agent-sandbox/api/archive-state";
import type { Sandbox, SandboxArchive } from "@agent-sandbox/api/kinds.gen";
import { sandboxArchives, sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "@agent-sandbox/sdk";
import { awaitObject } from "@agent-sandbox/sdk/control/await-object";
import type { Verdict } from "@agent-sandbox/sdk/control/verdict";
import { asSandboxError } from "@agent-sandbox/sdk/errors/api-failure";
import { SandboxError } from "@agent-sandbox/sdk/errors/sandbox-error";
import { CliError, usageError } from "../cli-error.ts";
import { type Context, type EngineFlags, openEngine, type Verb } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import { findSandbox } from "../objects/find-sandbox.ts";
import { Progress } from "../output/progress.ts";
import { deleteVerb } from "./delete.ts";

/** Reasons that no waiting mends: the Sandbox stays, and the archive that was asked for is deleted again. */
const archiveEnds: readonly string[] = [
  "ArchiveFailed",
  "NameTaken",
  "NoArchive",
  "SandboxIsControlled",
  "SandboxNotFound",
  "SandboxNotStarted",
] satisfies ArchiveReason[];

/** Reasons for which a Sandbox does not come back by itself; its archive stays. */
const recallEnds: readonly string[] = ["NameTaken", "NoArchive", "SandboxNotFound"] satisfies ArchiveReason[];

/** Puts sandboxes to sleep, and then into the archive. */
export const archiveCreateVerb: Verb<EngineFlags> = async (context, names, flags) => {
  const engine = await openEngine(flags);
  for (const name of names) {
    using progress = new Progress(context);
    const sandbox = await findSandbox(name, flags, context);
    const { client, namespace } = engine;
    const object = await client.get(sandboxes, { namespace, name: sandbox.name }, { signal: context.signal });
    assertLeaves(object);
    progress.show(`suspending ${sandbox.name}`);
    await sandbox.suspend({ signal: context.signal });
    const archive = await makeArchive(engine, sandbox.name, {}, context.signal);
    await awaitArchived(engine, archive, context, (why) => progress.show(`${sandbox.name}: ${why}`));
    progress.clear();
    context.stdout.write(`sandboxes/${sandbox.name} archived\n`);
  }
};

interface UnarchiveFlags extends EngineFlags {
  readonly id?: string;
}

/** Brings sandboxes back. */
export const unarchiveVerb: Verb<UnarchiveFlags> = async (context, names, flags) => {
  if (flags.id !== undefined && names.length > 1) throw usageError("--id is of one sandbox");
  const engine = await openEngine(flags);
  for (const name of names) {
    using progress = new Progress(context);
    progress.show(`bringing back ${name}`);
    const archive =
      flags.id === undefined
        ? await recall(engine, name, context.signal)
        : await makeArchive(engine, name, { recall: true, archiveID: flags.id }, context.signal);
    await awaitBack(engine, archive, context, (why) => progress.show(`${name}: ${why}`));
    progress.clear();
    context.stdout.write(`sandboxes/${name} is back\n`);
  }
};

/** Deletes archived sandboxes with their content. */
export const archiveRmVerb: Verb = (context, names, flags) => deleteVerb(context, ["archives", ...names], flags);

/** What is frozen keeps its Pod, and would be waited for without end. Exported for tests. */
export function assertLeaves({ metadata, spec }: Pick<Sandbox, "metadata" | "spec">): void {
  const { suspensionStrategy, autoSuspension } = spec;
  if (suspensionStrategy?.type !== "Freeze" || autoSuspension?.hibernateAfterSeconds !== undefined) return;
  const message = `sandbox '${metadata.name}' freezes, and what is frozen is not archived`;
  throw new CliError(message, {
    exitCode: exitCodes.conflict,
    hint: "Let it stop or hibernate: spec.suspensionStrategy, or autoSuspension.hibernateAfterSeconds",
  });
}

/** One that is there already is waited for as if it were ours. */
async function makeArchive(
  { client, namespace }: Engine,
  name: string,
  spec: SandboxArchive["spec"],
  signal: AbortSignal,
): Promise<SandboxArchive> {
  const key = { namespace, name };
  const kind = { apiVersion: "agent-sandbox.dev/v1alpha1", kind: "SandboxArchive" } as const;
  const made = await client
    .create(sandboxArchives, { ...kind, metadata: key, spec }, { signal })
    .catch(ignore("AlreadyExists"))
    .catch((error: unknown) => {
      throw asSandboxError(`archive ${namespace}/${name}`, error);
    });
  return made ?? client.get(sandboxArchives, key, { signal });
}

async function recall({ client, namespace }: Engine, name: string, signal: AbortSignal): Promise<SandboxArchive> {
  const patch = { type: "merge" as const, body: { spec: { recall: true } } };
  const asked = await client
    .patch(sandboxArchives, { namespace, name }, patch, { signal })
    .catch(ignore("NotFound"))
    .catch((error: unknown) => {
      throw asSandboxError(`recall ${namespace}/${name}`, error);
    });
  if (asked !== undefined) return asked;
  throw new CliError(`no sandbox '${name}' is archived in namespace '${namespace}'`, {
    exitCode: exitCodes.notFound,
    hint: "List them with: agent-sandbox ls --archived. One whose object is lost comes back by its id: unarchive --id",
  });
}

async function awaitArchived(
  { client }: Engine,
  archive: SandboxArchive,
  { signal }: Context,
  onWaiting: (why: string) => void,
): Promise<void> {
  const { namespace = "", name, uid = "" } = archive.metadata;
  try {
    await awaitObject({ client, resource: sandboxArchives, namespace, name, judge: judgeArchived, onWaiting, signal });
  } catch (error) {
    // Otherwise it would be archived at some later sleep, when nobody thinks of it any more.
    const isOver = error instanceof SandboxError && error.code !== "not-found";
    if (isOver)
      await client.delete(sandboxArchives, { namespace, name }, { uid }).catch(ignore("NotFound", "Conflict"));
    throw error;
  }
}

/** Whether a sandbox has left. Exported for tests. */
export function judgeArchived(archive: SandboxArchive): Verdict {
  const { reason, message } = archiveState(archive);
  if (reason === ("Archived" satisfies ArchiveReason)) return { kind: "done" };
  if (archiveEnds.includes(reason)) return failed(archive, `is not archived: ${message}`);
  return { kind: "waiting", why: message };
}

/** Its archive goes when the Sandbox has started; until then it says what keeps it. */
async function awaitBack(
  { client }: Engine,
  archive: SandboxArchive,
  { signal }: Context,
  onWaiting: (why: string) => void,
): Promise<void> {
  const { namespace = "", name } = archive.metadata;
  const done = (): Verdict => ({ kind: "done" });
  const watched = { client, resource: sandboxArchives, namespace, name, judge: judgeRecalled, onWaiting, signal };
  await awaitObject({ ...watched, resourceVersion: archive.metadata.resourceVersion, onDeleted: done });
}

/** Whether a sandbox will not come back as things are. Exported for tests. */
export function judgeRecalled(archive: SandboxArchive): Verdict {
  const { reason, message } = archiveState(archive);
  // Content that is removed is of a Sandbox that has started.
  if (archive.metadata.deletionTimestamp !== undefined) return { kind: "done" };
  if (recallEnds.includes(reason)) return failed(archive, `does not come back: ${message}`);
  return { kind: "waiting", why: message };
}

function failed({ metadata }: SandboxArchive, why: string): Verdict {
  const message = `sandbox ${metadata.namespace}/${metadata.name} ${why}`;
  return { kind: "failed", error: new SandboxError("sandbox-failed", message) };
}
