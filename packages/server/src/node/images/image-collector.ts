import { type Clock, delay } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { Host } from "../host/host.ts";
import type { ImageStore } from "./image-store.ts";
import { type CollectionLimits, planCollection } from "./plan-collection.ts";

/** Bounds of how often the disk is looked at; between them, as often as an image that was in use can become one that may go. */
const everyMaxMs = 5 * 60_000;
const everyMinMs = 1_000;

/** The collector's parts. */
export interface ImageCollectorOptions {
  readonly store: ImageStore;
  readonly host: Pick<Host, "info">;
  readonly clock: Clock;
  readonly logger: Logger;
  /** References of images that containers run on, or are about to. */
  readonly used: () => ReadonlySet<string>;
  readonly limits: CollectionLimits;
  readonly signal: AbortSignal;
}

/** Looks at the disk now and then until the signal aborts. */
export async function runImageCollector(options: ImageCollectorOptions): Promise<void> {
  const { clock, logger, limits, signal } = options;
  const everyMs = Math.max(everyMinMs, Math.min(everyMaxMs, limits.ageMinMs));
  while (!signal.aborted) {
    try {
      await delay(clock, everyMs, signal);
      await collectImages(options);
    } catch (error) {
      if (signal.aborted) return;
      logger.warn({ err: error }, "images could not be collected; it is tried again");
    }
  }
}

/** One round: images go, one by one, until there is room or none is left that may go. Resolves with their names. */
export async function collectImages(options: ImageCollectorOptions): Promise<string[]> {
  const { store, host, clock, logger, used, limits, signal } = options;
  await store.touch(used());
  const removed: string[] = [];
  for (;;) {
    const { diskBytes, diskFreeBytes } = await host.info(signal);
    const image = planCollection({
      images: store.list(),
      used: used(),
      diskBytes,
      diskFreeBytes,
      isCollecting: removed.length > 0,
      nowMs: clock.nowMs(),
      limits,
    });
    if (image === undefined) break;
    await store.remove(image.name);
    await store.collectGarbage(signal);
    removed.push(image.name);
    logger.info({ image: image.name, lastUsedAt: image.lastUsedAt }, "image removed: the disk is nearly full");
  }
  // Also without pressure: blobs of failed pulls and replaced tags belong to no image.
  if (removed.length === 0) await store.collectGarbage(signal);
  return removed;
}
