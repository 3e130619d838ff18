import { isDeepStrictEqual } from "node:util";
import type { Pod } from "@agent-sandbox/api";
import type { WriteFilesRequest } from "../host/volume.ts";
import { planVolumes } from "../volumes/plan-volumes.ts";
import { isFilesVolume } from "../volumes/volume-files.ts";
import type { PodContext } from "./pod-context.ts";
import { readPodObjects } from "./pod-objects.ts";
import { storageUidOf } from "./pod-record.ts";

/** How long a changed ConfigMap, Secret or token may take to reach a running pod; the kubelet's figure. */
const refreshMs = 60_000;

interface Written {
  readonly atMs: number;
  /** Labels and annotations: a change of them is seen at once, because a downward volume may show them. */
  readonly shown: string;
  readonly files: readonly WriteFilesRequest[];
}

/** Keeps the files of running pods equal to the objects they come from. */
export class FileRefresher {
  readonly #written = new Map<string, Written>();

  /** Remembers what a pod was prepared with. */
  note({ clock }: PodContext, pod: Pod, files: readonly WriteFilesRequest[]): void {
    if (files.length === 0) return;
    this.#written.set(pod.metadata.uid ?? "", { atMs: clock.nowMs(), shown: shownOf(pod), files });
  }

  /** Rewrites what changed, if it is time; resolves with when to look again, or undefined for a pod without such files. */
  async refresh(context: PodContext, pod: Pod, signal: AbortSignal): Promise<number | undefined> {
    const { clock, host, client, tokens, records, node } = context;
    const uid = pod.metadata.uid ?? "";
    const isRunning = records.get(uid)?.isPrepared === true && pod.metadata.deletionTimestamp === undefined;
    if (!isRunning || !(pod.spec?.volumes ?? []).some(isFilesVolume)) {
      this.#written.delete(uid);
      return undefined;
    }
    const known = this.#written.get(uid);
    const nowMs = clock.nowMs();
    const shown = shownOf(pod);
    if (known !== undefined && known.shown === shown && nowMs - known.atMs < refreshMs)
      return refreshMs - (nowMs - known.atMs);
    const objects = await readPodObjects(client, pod, signal);
    await tokens.ensure(pod, signal);
    const sources = { ...objects, node, token: (wish: Parameters<typeof tokens.get>[1]) => tokens.get(pod, wish) };
    const record = records.get(uid);
    const result = planVolumes({
      pod,
      storageUid: record === undefined ? uid : storageUidOf(record),
      sources,
      claim: objects.claim,
      emptyDirBytesDefault: context.config.limits.podDiskBytes,
    });
    // An object that has gone leaves its last files in place, as on Kubernetes.
    const files = result.ok ? result.plan.files : (known?.files ?? []);
    for (const request of files) {
      const before = known?.files.find(({ id }) => id === request.id);
      if (!isDeepStrictEqual(before, request)) await host.writeFiles(request, signal);
    }
    this.#written.set(uid, { atMs: nowMs, shown, files });
    return refreshMs;
  }
}

function shownOf({ metadata }: Pod): string {
  return JSON.stringify([metadata.labels, metadata.annotations]);
}
