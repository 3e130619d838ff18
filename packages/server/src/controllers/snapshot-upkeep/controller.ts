import type { KubeObject, Sandbox, SandboxSnapshot } from "@agent-sandbox/api";
import { ignore, keyOf, namespacedKey, sandboxSnapshots, snapshotState } from "@agent-sandbox/api";
import { type Controller, defineController, done, type Outcome } from "@agent-sandbox/kube";
import { byOwner, bySandbox, scoped } from "../caches.ts";
import type { SandboxContext } from "../sandbox-lifecycle/context.ts";
import { onlyOwnPod } from "../sandbox-pod/own-pod.ts";
import { statusPatch } from "../status-patch.ts";
import { planSnapshot, type SnapshotObserved } from "./plan.ts";

/** Says why no node takes a snapshot on, and deletes what is kept no longer. Keys are snapshots. */
export function snapshotController(context: SandboxContext): Controller {
  const { clock, random, telemetry, caches } = context;
  const { snapshots } = caches;
  return defineController({
    name: "sandboxsnapshot",
    clock,
    random,
    telemetry,
    workers: 1,
    caches: [...caches.informers, snapshots.informer],
    observe: (queue) => {
      snapshots.addHandler({
        onAdd: (snapshot) => queue.add(keyOf(snapshot)),
        onUpdate: (_old, snapshot) => queue.add(keyOf(snapshot)),
      });
      const touchPending = (sandbox: KubeObject): void => {
        for (const snapshot of snapshots.byIndex(bySandbox, scoped(sandbox, sandbox.metadata.name)))
          if (snapshotState(snapshot).state === "pending") queue.add(keyOf(snapshot));
      };
      caches.sandboxes.addHandler({
        onAdd: touchPending,
        onUpdate: (_old, sandbox) => touchPending(sandbox),
        onDelete: touchPending,
      });
    },
    reconcile: async (key, signal) => {
      const snapshot = snapshots.get(key);
      return snapshot === undefined ? done : reconcileSnapshot(context, snapshot, signal);
    },
  });
}

async function reconcileSnapshot(
  context: SandboxContext,
  snapshot: SandboxSnapshot,
  signal: AbortSignal,
): Promise<Outcome> {
  const plan = planSnapshot(observeSnapshot(context, snapshot));
  const { client, caches } = context;
  const { namespace = "", name, uid, resourceVersion } = snapshot.metadata;
  switch (plan.kind) {
    case "idle":
      return done;
    case "delete":
      await client.delete(sandboxSnapshots, { namespace, name }, { uid: plan.uid, signal }).catch(ignore("NotFound"));
      caches.snapshots.gone(snapshot);
      return done;
    case "keep": {
      const status = plan.status && statusPatch(snapshot.status, plan.status);
      if (status !== undefined) {
        const patch = { type: "merge" as const, body: { metadata: { uid, resourceVersion }, status } };
        const written = await client
          .patch(sandboxSnapshots, { namespace, name }, patch, { subresource: "status", signal })
          .catch(ignore("NotFound"));
        if (written !== undefined) caches.snapshots.wrote(written);
      }
      return plan.expiresInMs === undefined ? done : { kind: "requeue-after", afterMs: plan.expiresInMs };
    }
    default:
      return plan satisfies never;
  }
}

function observeSnapshot({ caches, clock }: SandboxContext, snapshot: SandboxSnapshot): SnapshotObserved {
  const { namespace = "" } = snapshot.metadata;
  const sandbox = caches.sandboxes.get(namespacedKey(namespace, snapshot.spec.sandboxName));
  const pod = sandbox && ownPod(caches, sandbox);
  return { snapshot, sandbox, pod, nowMs: clock.nowMs() };
}

function ownPod({ pods }: SandboxContext["caches"], sandbox: Sandbox): SnapshotObserved["pod"] {
  const candidates = pods.byIndex(byOwner, scoped(sandbox, sandbox.metadata.uid ?? ""));
  return onlyOwnPod({ sandbox, pods: candidates, tracked: undefined, made: undefined });
}
