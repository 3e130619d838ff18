import { randomBytes } from "node:crypto";
import type { KubeObject, Sandbox, SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import {
  annotationKeys,
  archiveSnapshotName,
  controllerOf,
  ignore,
  keyOf,
  namespacedKey,
  refersTo,
  sandboxArchives,
  sandboxes,
} from "@agent-sandbox/api";
import { type Controller, defineController, done, type Outcome, type WorkQueue } from "@agent-sandbox/kube";
import { byOwner, scoped } from "../caches.ts";
import type { SandboxContext } from "../sandbox-lifecycle/context.ts";
import { podsReferringTo } from "../sandbox-pod/own-pod.ts";
import { applyArchive } from "./apply.ts";
import type { ArchiveObserved } from "./archive-plan.ts";
import { planArchive } from "./plan.ts";
import { archiveTimeMs } from "./plan-rung.ts";

/** Brings Sandboxes into the archive and back. Keys are those of the archive and of its Sandbox, which have one name. */
export function archiveController(context: SandboxContext): Controller {
  const { clock, random, telemetry, caches } = context;
  return defineController({
    name: "sandboxarchive",
    clock,
    random,
    telemetry,
    workers: 1,
    caches: [...caches.informers, caches.snapshots.informer, caches.archives.informer],
    observe: (queue) => watchArchives(context, queue),
    reconcile: (key, signal) => reconcile(context, key, signal),
  });
}

async function reconcile(context: SandboxContext, key: string, signal: AbortSignal): Promise<Outcome> {
  const { caches } = context;
  const archive = caches.archives.get(key);
  if (archive === undefined) return reconcileRung(context, key, signal);
  await applyArchive(context, archive, planArchive(observeArchive(context, archive)), signal);
  return done;
}

/** A Sandbox without an archive: it may be time for one. */
async function reconcileRung(context: SandboxContext, key: string, signal: AbortSignal): Promise<Outcome> {
  const { caches, client, clock } = context;
  const sandbox = caches.sandboxes.get(key);
  if (sandbox === undefined) return done;
  const nowMs = clock.nowMs();
  const dueMs = archiveTimeMs(sandbox, podsOf(context, sandbox).length, nowMs);
  if (dueMs === undefined) return done;
  if (dueMs > nowMs) return { kind: "requeue-after", afterMs: dueMs - nowMs };
  const { namespace = "", name } = sandbox.metadata;
  const archive: SandboxArchive = {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxArchive",
    metadata: { namespace, name, annotations: { [annotationKeys.archiveCause]: "inactivity" } },
    spec: {},
  };
  const made = await client.create(sandboxArchives, archive, { signal }).catch(ignore("AlreadyExists"));
  if (made !== undefined) caches.archives.wrote(made);
  return done;
}

function observeArchive(context: SandboxContext, archive: SandboxArchive): ArchiveObserved {
  const { caches, clock } = context;
  const { namespace, uid = "" } = archive.metadata;
  const { archiveID } = archive.status ?? {};
  const sandbox = caches.sandboxes.get(keyOf(archive));
  const name = archiveID === undefined ? undefined : archiveSnapshotName(archiveID);
  const own = caches.snapshots.byIndex(byOwner, scoped(archive, uid));
  const isStale = ({ metadata }: SandboxSnapshot): boolean => metadata.name !== name;
  return {
    archive,
    sandbox,
    pods: sandbox === undefined ? [] : podsOf(context, sandbox),
    snapshot: name === undefined ? undefined : caches.snapshots.get(namespacedKey(namespace, name)),
    stale: own.filter(isStale),
    nowMs: clock.nowMs(),
    newID: randomBytes(16).toString("hex"),
  };
}

function podsOf({ caches }: SandboxContext, sandbox: Sandbox): ReturnType<typeof podsReferringTo> {
  const candidates = caches.pods.byIndex(byOwner, scoped(sandbox, sandbox.metadata.uid ?? ""));
  return podsReferringTo({ sandbox, pods: candidates, tracked: undefined });
}

function watchArchives({ caches }: SandboxContext, queue: WorkQueue<string>): void {
  const onEvery = (touch: (object: KubeObject) => void) => ({
    onAdd: touch,
    onUpdate: (_old: KubeObject, object: KubeObject) => touch(object),
    onDelete: touch,
  });
  caches.archives.addHandler(onEvery((archive) => queue.add(keyOf(archive))));
  const touchNamed = (key: string): void => {
    const isMeant = caches.archives.get(key) !== undefined || hasRung(caches.sandboxes.get(key));
    if (isMeant) queue.add(key);
  };
  caches.sandboxes.addHandler(onEvery((sandbox) => touchNamed(keyOf(sandbox))));
  const touchOwner =
    (kind: typeof sandboxes | typeof sandboxArchives) =>
    (object: KubeObject): void => {
      const owner = controllerOf(object);
      if (refersTo(owner, kind)) touchNamed(scoped(object, owner?.name ?? ""));
    };
  // While a Pod is there nothing is archived; its end may come after its Sandbox has said that it sleeps.
  caches.pods.addHandler({ onDelete: touchOwner(sandboxes) });
  caches.snapshots.addHandler(onEvery(touchOwner(sandboxArchives)));
}

function hasRung(sandbox: Sandbox | undefined): boolean {
  return sandbox?.spec.autoSuspension?.archiveAfterSeconds !== undefined;
}
