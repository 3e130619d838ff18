import { type Pod, Quantity } from "@agent-sandbox/api";
import { HostError } from "../host/host-error.ts";
import { sandboxesMemoryBytes } from "../limits.ts";
import { podMemory } from "../pod-spec/resources.ts";
import type { PodContext } from "./pod-context.ts";
import type { ContainerRecord, LimitCounts, PodRecord } from "./pod-record.ts";

/** A limit that ended a sandbox. */
export interface LimitHit {
  /** The reason of a container status and of events. */
  readonly reason: "OOMKilled" | "PidLimitReached";
  readonly message: string;
}

const none: LimitCounts = { oomKills: 0, memoryRefused: 0, pidsRefused: 0 };

/** What the cgroup of a pod has counted so far; undefined where it is gone. */
export async function limitCounts(
  { host }: Pick<PodContext, "host">,
  cgroup: string,
  signal: AbortSignal,
): Promise<LimitCounts | undefined> {
  try {
    const { oomKills, memoryRefused, pidsRefused } = await host.cgroupStats({ id: cgroup }, signal);
    return { oomKills, memoryRefused, pidsRefused };
  } catch (error) {
    // A cgroup that is gone tells nothing; the exit code stands alone then.
    if (error instanceof HostError) return undefined;
    throw error;
  }
}

/** Which limit was hit since a run began, if one was. */
export async function limitHit(
  context: PodContext,
  pod: Pod,
  { record, run }: { readonly record: PodRecord; readonly run: ContainerRecord },
  signal: AbortSignal,
): Promise<LimitHit | undefined> {
  const counts = await limitCounts(context, record.cgroup, signal);
  return counts === undefined ? undefined : hitBetween(context, pod, run.limitsBefore ?? none, counts);
}

function hitBetween(context: PodContext, pod: Pod, before: LimitCounts, now: LimitCounts): LimitHit | undefined {
  const { limits } = context.config;
  if (now.oomKills > before.oomKills) {
    const isOwn = now.memoryRefused > before.memoryRefused;
    const own = `the sandbox was killed: it reached its memory limit of ${binary(podMemory(pod, limits))}`;
    const total = binary(sandboxesMemoryBytes(limits, context.node.memoryBytes));
    const all = `the sandbox was killed: all sandboxes of the node together reached the ${total} of memory that they have`;
    return { reason: "OOMKilled", message: isOwn ? own : all };
  }
  if (now.pidsRefused > before.pidsRefused) {
    // The sentry cannot go on without a thread that it needs: what is refused to a guest ends all of it.
    const message = `the sandbox was killed: it reached its limit of ${limits.podPidsMax} processes and threads, the runtime's included`;
    return { reason: "PidLimitReached", message };
  }
  return undefined;
}

function binary(bytes: number): string {
  return new Quantity(BigInt(Math.round(bytes)) * 10n ** 9n, "BinarySI").toString();
}
