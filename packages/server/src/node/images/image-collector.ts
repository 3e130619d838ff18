import { type Clock, type Controller, type ControllerTelemetry, defineLoop } from "@agent-sandbox/kube";
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
  readonly telemetry?: ControllerTelemetry;
  readonly signal: AbortSignal;
}

/** Looks at the disk now and then, and removes images that nothing runs on while it is nearly full. */
export function imageCollector(options: ImageCollectorOptions): Controller {
  const { clock, limits, telemetry } = options;
  return defineLoop({
    name: "node-images",
    clock,
    everyMs: Math.max(everyMinMs, Math.min(everyMaxMs, limits.ageMinMs)),
    ...(telemetry !== undefined && { telemetry }),
    run: async () => void (await collectImages(options)),
  });
}

/** One round: images go, one by one, until there is room or none is left that may go. Resolves with their names. Exported for tests. */
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
  // Also without pressure: what failed pulls and replaced tags left behind is referred to by no image.
  if (removed.length === 0) await store.collectGarbage(signal);
  return removed;
}
