import {
  annotations,
  formatTimestampMs,
  ignore,
  isBeingSuspended,
  type Pod,
  podOwnerOf,
  type Sandbox,
  sandboxes,
} from "@agent-sandbox/api";
import { type Client, type Clock, delay, type Informer } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { OpenStreams } from "./open-streams.ts";
import { activityToReport, checkTimeOf, type SeenUse } from "./plan-checks.ts";

/** The keeper's parts. */
export interface ActivityKeeperOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly pods: Pick<Informer<Pod>, "list" | "get">;
  readonly sandboxes: Pick<Informer<Sandbox>, "get">;
  readonly streams: OpenStreams;
  /** What the daemon at an address says; undefined where none answers. */
  readonly ask: (address: string) => Promise<SeenUse | undefined>;
  /** Whether somebody on this machine holds a connection to an address that is not the engine's own. */
  readonly isDialled: (address: string) => Promise<boolean>;
  readonly signal: AbortSignal;
}

/** Between two rounds; the shortest timeout is a second, and a sandbox is looked at first at half of it. */
const roundMsMin = 250;
const roundMsMax = 1_000;

/** Bound on looks under way: a sandbox that answers slowly must not delay the look at another; more wait for the next round. */
const looksMax = 64;

interface Candidate {
  readonly pod: Pod;
  readonly sandbox: Sandbox;
}

/**
 * Keeps sandboxes awake that are used by ways the router does not see: commands and tunnels through the API, connections to
 * their addresses, and processes that run on inside after whoever started them has left. It looks only at sandboxes that would otherwise fall asleep soon.
 */
export async function runActivityKeeper(options: ActivityKeeperOptions): Promise<void> {
  const { clock, logger, pods, signal, streams } = options;
  /** When each sandbox was last looked at, by uid. */
  const checked = new Map<string, number>();
  const looking = new Set<string>();
  let pauseMs = roundMsMax;
  while (!signal.aborted) {
    await delay(clock, pauseMs, signal).catch(() => undefined);
    const candidates = candidatesOf(options);
    for (const uid of checked.keys()) if (!candidates.has(uid)) checked.delete(uid);
    streams.keepOnly((key) => pods.get(key) !== undefined);
    for (const [uid, candidate] of candidates) {
      if (looking.has(uid) || looking.size >= looksMax) continue;
      if (!isDue(candidate.sandbox, checked.get(uid), clock.nowMs())) continue;
      checked.set(uid, clock.nowMs());
      looking.add(uid);
      check(options, candidate)
        .catch((error: unknown) => {
          if (!signal.aborted)
            logger.warn({ err: error, key: candidate.sandbox.metadata.name }, "a look at its use failed");
        })
        .finally(() => looking.delete(uid));
    }
    pauseMs = candidates.size === 0 ? roundMsMax : roundMsMin;
  }
}

/** Sandboxes that fall asleep by themselves and have a pod here, by uid. */
function candidatesOf({ pods, sandboxes: cache }: ActivityKeeperOptions): Map<string, Candidate> {
  const found = new Map<string, Candidate>();
  for (const pod of pods.list()) {
    if (pod.metadata.deletionTimestamp !== undefined) continue;
    const owner = podOwnerOf(pod, (key) => cache.get(key));
    if (owner.kind !== "proven") continue;
    const { sandbox } = owner;
    if (sandbox.spec.autoSuspension !== undefined && !isBeingSuspended(sandbox))
      found.set(sandbox.metadata.uid ?? "", { pod, sandbox });
  }
  return found;
}

function isDue(sandbox: Sandbox, lastCheckMs: number | undefined, nowMs: number): boolean {
  const time = checkTimeOf(sandbox, lastCheckMs);
  // One that is past its time is the controller's: it falls asleep unless somebody wakes it.
  return time !== undefined && nowMs >= time.checkAtMs && nowMs < time.asleepAtMs;
}

async function check(options: ActivityKeeperOptions, { pod, sandbox }: Candidate): Promise<void> {
  const { client, clock, streams, ask, isDialled, signal } = options;
  const { isOpen, endedMs } = streams.of(`${pod.metadata.namespace ?? ""}/${pod.metadata.name}`);
  const address = pod.status?.podIP;
  const isHeld = isOpen || (address !== undefined && (await isDialled(address)));
  const inside = isHeld || address === undefined ? undefined : await ask(address);
  const seen = {
    isInUse: isHeld || inside?.isInUse === true,
    lastUseMs: Math.max(endedMs, inside?.lastUseMs ?? 0),
  };
  const atMs = activityToReport(sandbox, seen, clock.nowMs());
  if (atMs === undefined) return;
  const { namespace = "", name, uid } = sandbox.metadata;
  const body = { metadata: { uid, annotations: { [annotations.lastActivityAt]: formatTimestampMs(atMs) } } };
  await client
    .patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal })
    // Deleted, or another sandbox of the same name since.
    .catch(ignore("NotFound", "Conflict"));
}
