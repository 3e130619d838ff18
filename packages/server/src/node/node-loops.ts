import type { Pod } from "@agent-sandbox/api";
import type { Controller, ControllerTelemetry } from "@agent-sandbox/kube";
import { activityController } from "./activity/activity-controller.ts";
import { askDaemon } from "./activity/ask-daemon.ts";
import { isDialledFromHere } from "./activity/host-connections.ts";
import type { OpenStreams } from "./activity/open-streams.ts";
import { archiveController } from "./archive/archive-controller.ts";
import { diskKeeper } from "./disk/disk-keeper.ts";
import { freeBytesAt } from "./disk/free-space.ts";
import { imageCollector } from "./images/image-collector.ts";
import { followHeldConnections } from "./network/held-connections.ts";
import { rulesController } from "./network/rules-controller.ts";
import { isServing } from "./network/sandbox-addresses.ts";
import { wakeController } from "./network/wake-controller.ts";
import type { NodeAgentDeps } from "./node-agent-deps.ts";
import type { NodeCaches } from "./node-caches.ts";
import { memoryKeeper } from "./node-status/memory-keeper.ts";
import type { PodContext } from "./pods/pod-context.ts";
import { snapshotController } from "./snapshots/snapshot-controller.ts";
import { keptRemoval } from "./volume-keeping/volume-cleanup.ts";
import { volumeExpansion } from "./volume-keeping/volume-expansion.ts";
import { volumeRemoval } from "./volume-keeping/volume-removal.ts";

/** What the loops work with. */
export interface NodeLoopOptions {
  readonly deps: NodeAgentDeps;
  readonly telemetry: ControllerTelemetry;
  readonly context: PodContext;
  /** Filled. */
  readonly caches: NodeCaches;
  readonly streams: OpenStreams;
}

/** Starts what the node does besides running pods: rules, waking, activity, volumes, images, memory and disks. Each resolves when the agent has stopped. */
export function runNodeLoops({ deps, telemetry, context, caches, streams }: NodeLoopOptions): Promise<void>[] {
  const { client, host, clock, logger, rules, signal } = context;
  const shared = { client, host, clock, logger, telemetry };
  const { policies, namespaces, sandboxes, pods } = caches;
  const serves = (pod: Pod): boolean => context.sleep.serves(pod, isServing(pod));
  const wake = wakeController({ ...shared, pods, sandboxes, serves, applyRules: () => rules.apply() });
  const controllers: Controller[] = [
    rulesController({ ...shared, rules, sources: [policies, namespaces, sandboxes, pods] }),
    wake,
    activityController({
      ...shared,
      pods,
      sandboxes,
      streams,
      // Where daemons are a test's, their addresses lead nowhere.
      ask: deps.sandboxdAt === undefined ? askDaemon : async () => undefined,
      isDialled: isDialledFromHere,
    }),
    volumeExpansion(context, caches, telemetry),
    volumeRemoval(context, caches, telemetry),
    keptRemoval(context, caches, telemetry),
    snapshotController(context, caches, telemetry),
    archiveController(context, caches, deps.archive?.(context), telemetry),
    collectUnusedImages(context, telemetry),
    memoryKeeper(context, pods, telemetry),
    diskKeeper({ context, telemetry, pods, freeBytes: deps.freeBytes ?? (() => freeBytesAt(context.config.dataDir)) }),
  ];
  return [
    ...controllers.map((controller) => controller.run(signal)),
    followHeldConnections({ ...shared, onHeld: wake.held, renewRules: () => rules.renew(), signal }),
  ];
}

/** Images go when the disk fills up, but none that a container of this node runs on or is about to. */
function collectUnusedImages(
  { images, puller, records, host, clock, logger, config, signal }: PodContext,
  telemetry: ControllerTelemetry,
): Controller {
  const used = (): ReadonlySet<string> => {
    const running = records.all().flatMap(({ containers }) => Object.values(containers).map(({ imageId }) => imageId));
    return new Set([...running, ...puller.readyReferences()]);
  };
  const limits = config.imageCollection;
  return imageCollector({ store: images, host, clock, logger, telemetry, used, limits, signal });
}
