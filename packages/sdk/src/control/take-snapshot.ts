import { ignore } from "@agent-sandbox/api/api-error";
import type { SandboxSnapshot } from "@agent-sandbox/api/kinds.gen";
import { labelKeys } from "@agent-sandbox/api/labels";
import { sandboxSnapshots } from "@agent-sandbox/api/resource";
import { type SnapshotReason, snapshotState } from "@agent-sandbox/api/snapshot-state";
import type { Engine } from "../engine/engine.ts";
import { apiCall } from "../errors/api-failure.ts";
import { replaced } from "../errors/replaced.ts";
import { SandboxError } from "../errors/sandbox-error.ts";
import { awaitObject } from "./await-object.ts";
import type { CallTarget, SnapshotOptions } from "./create-options.ts";
import { randomName } from "./random-name.ts";
import { createdBy } from "./sandbox-object.ts";
import { type SnapshotInfo, snapshotInfo } from "./snapshot-info.ts";
import type { Verdict } from "./verdict.ts";

/** Which sandbox a snapshot is taken of. */
export interface SnapshotSource {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** Tens of gigabytes of files are copied in five minutes where the file system cannot share them. */
const snapshotTimeoutMs = 300_000;

/** Takes a snapshot and waits until it is ready. One that fails, or that nobody waits for any more, is deleted again. */
export async function takeSnapshot(
  engine: Engine,
  source: SnapshotSource,
  options: SnapshotOptions,
): Promise<SandboxSnapshot> {
  const object = snapshotObject(source, options);
  const { namespace, name } = source;
  const { signal } = options;
  const { createWhole } = await import("./create-whole.ts");
  const made = await apiCall(`snapshot of sandbox ${namespace}/${name}`, () =>
    createWhole(engine.client, sandboxSnapshots, object, signal),
  );
  try {
    const ready = await awaitSnapshot(engine, made, options);
    if (ready.status?.sandboxUID !== undefined && ready.status.sandboxUID !== source.uid)
      throw replaced(namespace, name);
    return ready;
  } catch (error) {
    await dropSnapshot(engine, made);
    throw error;
  }
}

/** Deletes this very snapshot; one that is gone already is fine, and an API that is away leaves it to its end. */
export async function dropSnapshot({ client }: Engine, { metadata }: SandboxSnapshot): Promise<void> {
  const { namespace = "", name, uid = "" } = metadata;
  const gone = ignore("NotFound", "Conflict", "ServiceUnavailable");
  await client.delete(sandboxSnapshots, { namespace, name }, { uid }).catch(gone);
}

function snapshotObject(source: SnapshotSource, options: SnapshotOptions): SandboxSnapshot {
  const { name = randomName(source.name.slice(0, 50)), memory, ttlMs } = options;
  if (ttlMs !== undefined && !(Number.isFinite(ttlMs) && ttlMs > 0))
    throw new SandboxError("invalid-argument", `ttlMs must be above 0, not ${ttlMs}`);
  return {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: { name, namespace: source.namespace, labels: { [labelKeys.createdBy]: createdBy } },
    spec: {
      sandboxName: source.name,
      ...(memory !== undefined && { memory }),
      ...(ttlMs !== undefined && { ttlSecondsAfterCreation: Math.ceil(ttlMs / 1000) }),
    },
  };
}

async function awaitSnapshot(
  { client }: Engine,
  known: SandboxSnapshot,
  { waitTimeoutMs = snapshotTimeoutMs, signal }: SnapshotOptions,
): Promise<SandboxSnapshot> {
  const { namespace = "", name, resourceVersion } = known.metadata;
  const over = AbortSignal.timeout(waitTimeoutMs);
  const both = signal === undefined ? over : AbortSignal.any([signal, over]);
  let last = "waiting for the controller";
  try {
    return await awaitObject({
      client,
      resource: sandboxSnapshots,
      namespace,
      name,
      resourceVersion,
      judge: judgeSnapshot,
      onWaiting: (why) => {
        last = why;
      },
      signal: both,
    });
  } catch (error) {
    if (!over.aborted || signal?.aborted === true) throw error;
    const message = `snapshot ${namespace}/${name} was not ready within ${waitTimeoutMs} ms; last seen: ${last}`;
    throw new SandboxError("wait-timeout", message);
  }
}

/** Reasons that no waiting mends for a sandbox that was there a moment ago. */
const ends: ReadonlyMap<string, SandboxError["code"]> = new Map<SnapshotReason, SandboxError["code"]>([
  ["SnapshotFailed", "snapshot-failed"],
  ["SandboxNotFound", "not-found"],
  ["SnapshotsNotAvailable", "unsupported"],
]);

/** Whether a snapshot is there. Exported for tests. */
export function judgeSnapshot(snapshot: SandboxSnapshot): Verdict {
  const { state, reason, message } = snapshotState(snapshot);
  if (state === "ready") return { kind: "done" };
  const { namespace = "", name } = snapshot.metadata;
  const code = ends.get(reason);
  if (code === undefined) return { kind: "waiting", why: message === "" ? "waiting for the controller" : message };
  return { kind: "failed", error: new SandboxError(code, `snapshot ${namespace}/${name}: ${message}`) };
}

/** All snapshots of a namespace, oldest name first. */
export async function listSnapshots(engine: Engine, options: CallTarget): Promise<SnapshotInfo[]> {
  const { namespace = engine.namespace, signal } = options;
  const found: SnapshotInfo[] = [];
  let next: string | undefined;
  do {
    const page = await apiCall("list snapshots", () =>
      engine.client.list(sandboxSnapshots, {
        limit: 500,
        namespace,
        ...(next !== undefined && { continue: next }),
        ...(signal !== undefined && { signal }),
      }),
    );
    found.push(...page.items.map(snapshotInfo));
    next = page.metadata.continue;
  } while (next !== undefined && next !== "");
  return found;
}

/** Deletes the snapshot of a name; one that is not there is fine. */
export async function deleteSnapshot(engine: Engine, name: string, options: CallTarget): Promise<void> {
  const { namespace = engine.namespace, signal } = options;
  const call = signal === undefined ? {} : { signal };
  await apiCall(`delete snapshot ${namespace}/${name}`, () =>
    engine.client.delete(sandboxSnapshots, { namespace, name }, call).catch(ignore("NotFound")),
  );
}
