import { ignore } from "@agent-sandbox/api/api-error";
import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import { annotationKeys, isReservedLabel, labelKeys } from "@agent-sandbox/api/labels";
import { sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import { asSandboxError } from "../errors/api-failure.ts";
import { isSandboxError, SandboxError } from "../errors/sandbox-error.ts";
import type { ForkOptions } from "./create-options.ts";
import { createObject } from "./create-sandbox.ts";
import { randomName } from "./random-name.ts";
import { createdBy, shutdownTime } from "./sandbox-object.ts";
import { dropSnapshot, takeSnapshot } from "./take-snapshot.ts";

/** A client that dies leaves its snapshot for this long: more than children take to start, and an hour of disk at most. */
const forkSnapshotTtlMs = 3_600_000;

/** More than that in one call is a mistake: each is a sandbox with memory of its own. */
const forksMax = 1_000;

/** Copies a sandbox: one snapshot, and as many Sandboxes that start from it. Results in order, each a Sandbox or why there is none. */
export async function forkSandbox(
  engine: Engine,
  source: Sandbox,
  count: number,
  options: ForkOptions,
): Promise<(Sandbox | SandboxError)[]> {
  if (!Number.isInteger(count) || count < 1 || count > forksMax)
    throw new SandboxError("invalid-argument", `fork: the number must be from 1 to ${forksMax}, not ${count}`);
  const { namespace = "", name, uid = "" } = source.metadata;
  const { memory, signal } = options;
  const snapshot = await takeSnapshot(
    engine,
    { namespace, name, uid },
    {
      name: randomName("fork"),
      ttlMs: forkSnapshotTtlMs,
      ...(memory !== undefined && { memory }),
      ...(signal !== undefined && { signal }),
    },
  );
  const children = forkObjects(source, snapshot.metadata.name, count, options);
  const results = await Promise.all(children.map((child) => startChild(engine, child, options)));
  // Children that nobody waited for still need it: it goes when its time is up.
  if (options.readyTimeoutMs !== 0) await dropSnapshot(engine, snapshot);
  if (signal?.aborted !== true) return results;
  await Promise.all(results.map((result) => undo(engine, result)));
  throw signal.reason;
}

async function startChild(engine: Engine, child: Sandbox, options: ForkOptions): Promise<Sandbox | SandboxError> {
  try {
    return await createObject(engine, child, options);
  } catch (error) {
    const failure = asSandboxError(`fork ${child.metadata.name}`, error);
    return isSandboxError(failure) ? failure : new SandboxError("internal", String(failure), { cause: error });
  }
}

async function undo({ client }: Engine, result: Sandbox | SandboxError): Promise<void> {
  if (isSandboxError(result)) return;
  const { namespace = "", name, uid = "" } = result.metadata;
  const gone = ignore("NotFound", "Conflict", "ServiceUnavailable");
  await client.delete(sandboxes, { namespace, name }, { uid }).catch(gone);
}

/** The children: the source's spec and its user's labels, and nothing that the engine gave to the source. Exported for tests. */
function forkObjects(source: Sandbox, snapshotName: string, count: number, options: ForkOptions): Sandbox[] {
  const { namespace = "", labels = {}, annotations = {} } = source.metadata;
  const { operatingMode: _mode, ...spec } = source.spec;
  const { ttlMs, name: prefix = randomName(source.metadata.name.slice(0, 40)) } = options;
  const end = ttlMs !== undefined && {
    shutdownTime: shutdownTime(Date.now(), ttlMs),
    shutdownPolicy: "Delete" as const,
  };
  // The template that it was made from has a network policy, which is for its forks too.
  const kept = Object.entries(labels).filter(([key]) => !isReservedLabel(key) || key === labelKeys.templateRefHash);
  const noted = [annotationKeys.services, annotationKeys.containerDefaults].flatMap((key) => {
    const value = annotations[key];
    return value === undefined ? [] : [[key, value] as const];
  });
  return Array.from({ length: count }, (_, index) => ({
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: {
      name: `${prefix}-${index + 1}`,
      namespace,
      labels: { ...Object.fromEntries(kept), [labelKeys.createdBy]: createdBy },
      ...(noted.length > 0 && { annotations: Object.fromEntries(noted) }),
    },
    spec: { ...spec, ...end, restoreFrom: { snapshotName } },
  }));
}
