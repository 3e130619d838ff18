import type { SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import { keyOf, namespacedKey } from "@agent-sandbox/api";
import { type Controller, type ControllerTelemetry, defineController, done } from "@agent-sandbox/kube";
import type { NodeCaches } from "../node-caches.ts";
import type { PodContext } from "../pods/pod-context.ts";
import { type ArchiveDesk, doDuty } from "./archive-duties.ts";
import type { ArchiveWork } from "./archive-work.ts";

/** Archives worked on at once: each moves as much as the store or the disk takes. */
const workers = 2;

/** Longer than a slow store takes for what a machine's disk holds; a pass that ends goes on from what is there. */
const passTimeoutMs = 6 * 60 * 60_000;

/** Stores, brings back and removes the content of archives whose Sandboxes have their files on this node. Keys are archives. */
export function archiveController(
  { client, host, clock, config }: PodContext,
  { archives, snapshots, sandboxes }: Pick<NodeCaches, "archives" | "snapshots" | "sandboxes">,
  work: ArchiveWork | undefined,
  telemetry: ControllerTelemetry,
): Controller {
  const desk: ArchiveDesk = {
    client,
    host,
    clock,
    nodeName: config.nodeName,
    sandbox: (key) => sandboxes.get(key),
    snapshot: (key) => snapshots.get(key),
    work,
  };
  return defineController({
    name: "node-archives",
    clock,
    telemetry,
    workers,
    passTimeoutMs,
    caches: [archives, snapshots, sandboxes],
    observe: (queue) => {
      const add = (archive: SandboxArchive): void => queue.add(keyOf(archive));
      archives.addHandler({ onAdd: add, onUpdate: (_old, archive) => add(archive) });
      const touch = ({ metadata, spec }: SandboxSnapshot): void => {
        const key = namespacedKey(metadata.namespace, spec.sandboxName);
        if (archives.get(key)?.status?.snapshot?.uid === metadata.uid) queue.add(key);
      };
      snapshots.addHandler({ onAdd: touch, onUpdate: (_old, snapshot) => touch(snapshot) });
    },
    reconcile: async (key, signal) => {
      const archive = archives.get(key);
      if (archive !== undefined) await doDuty(desk, archive, signal);
      return done;
    },
  });
}
