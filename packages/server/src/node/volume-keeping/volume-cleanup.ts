import type { Sandbox } from "@agent-sandbox/api";
import { type Controller, type ControllerTelemetry, defineController, done } from "@agent-sandbox/kube";
import { HostError } from "../host/host-error.ts";
import type { NodeCaches } from "../node-caches.ts";
import { isKeptFor, keptLayerKey } from "../pods/kept-layer.ts";
import type { PodContext } from "../pods/pod-context.ts";
import { discardSaved } from "../pods/pod-restore.ts";
import { savedIdOf } from "../pods/pod-sleep.ts";

/** The one key: what is kept is compared with all Sandboxes there are. */
const key = "kept";

/** Deletes what is kept for a Sandbox once that has gone: its writable layers and its saved memory. What fails is tried again, because a helper that is being started again answers nothing. */
export function keptRemoval(context: PodContext, caches: NodeCaches, telemetry: ControllerTelemetry): Controller {
  return defineController({
    name: "node-kept-removal",
    clock: context.clock,
    telemetry,
    caches: [caches.sandboxes],
    observe: (queue) => {
      const add = (): void => queue.add(key);
      caches.sandboxes.addHandler({
        onDelete: add,
        onUpdate: (old, sandbox) => {
          if (old.status?.restart !== undefined && sandbox.status?.restart === undefined) add();
        },
      });
      context.afterRelease.push(add);
      // Also for a Sandbox that went after the agent's start had looked.
      add();
    },
    reconcile: async (_key, signal) => {
      await removeUnowned(context, caches, signal);
      return done;
    },
  });
}

/** Removes what was kept for Sandboxes that are gone: saved memory with its directories, and writable layers. */
export async function removeUnowned(context: PodContext, caches: NodeCaches, signal: AbortSignal): Promise<void> {
  const uids = caches.sandboxes.list().map(({ metadata }) => metadata.uid ?? "");
  await removeUnownedMemory(context, uids, signal);
  const snapshots = context.snapshots.all().map(({ uid }) => uid);
  await removeUnownedLayers(context, [...uids, ...snapshots], signal);
  await removeEarlierLayers(context, caches.sandboxes.list(), signal);
}

/** Removes the layers that Sandboxes had before they went back to a snapshot, once they have run from it. */
async function removeEarlierLayers(
  { host }: PodContext,
  sandboxes: readonly Sandbox[],
  signal: AbortSignal,
): Promise<void> {
  const earlier = new Set(sandboxes.flatMap(earlierLayers));
  if (earlier.size === 0) return;
  for (const { key, mounted } of await host.listWritableLayers(signal))
    if (!mounted && earlier.has(key)) await host.deleteWritableLayer({ key }, signal);
}

/** Returns whose layers are looked for: one that could not be removed at once is removed after one of the next. */
const returnsMax = 16;

function earlierLayers({ metadata, spec, status }: Sandbox): string[] {
  const { generation, startedAt } = status?.restoredFrom ?? {};
  if (generation === undefined || startedAt === undefined || status?.restart !== undefined) return [];
  const { containers, initContainers = [] } = spec.podTemplate.spec;
  const earlier = Array.from({ length: Math.min(generation, returnsMax) }, (_, index) => generation - 1 - index);
  return [...containers, ...initContainers].flatMap(({ name }) =>
    earlier.map((one) => keptLayerKey(metadata.uid ?? "", name, one === 0 ? undefined : one)),
  );
}

/** Memory of a pod that is still here waits for that to go. */
async function removeUnownedMemory(context: PodContext, uids: readonly string[], signal: AbortSignal): Promise<void> {
  const { host, records } = context;
  const used = new Set(records.all().flatMap(({ isHibernated, sandboxUid }) => (isHibernated ? [] : sandboxUid)));
  for (const { sandboxUid } of records.all().filter(({ isHibernated }) => isHibernated === true))
    if (sandboxUid !== undefined && !uids.includes(sandboxUid) && !used.has(sandboxUid))
      await discardSaved(context, sandboxUid, signal);
  const kept = new Set([...uids, ...used].map((uid) => savedIdOf(uid ?? "")));
  // One that may be restored more than once is not a Sandbox's sleep.
  const states = (await host.listSaved(signal)).filter(({ reusable }) => reusable !== true);
  for (const { id } of states) if (!kept.has(id)) await host.discardSaved({ id }, signal);
}

/** One that is still mounted waits for its pod to go. */
async function removeUnownedLayers({ host }: PodContext, uids: readonly string[], signal: AbortSignal): Promise<void> {
  for (const { key, mounted } of await host.listWritableLayers(signal)) {
    if (mounted || uids.some((uid) => isKeptFor(key, uid))) continue;
    try {
      await host.deleteWritableLayer({ key }, signal);
    } catch (error) {
      if (!(error instanceof HostError && error.code === "busy")) throw error;
    }
  }
}
