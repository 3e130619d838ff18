import { asleepCondition, findCondition, memoryUseOf, type Pod } from "@agent-sandbox/api";
import { podHostId } from "../container-id.ts";
import { isSidecar } from "../pod-spec/resources.ts";
import { applySleep, isMemoryOf, lookAtSleep, type Sleeper } from "../sleep/apply-sleep.ts";
import { planSleep, type SleepPlan, type SleepStep } from "../sleep/plan-sleep.ts";
import type { ObservedPod } from "./observed-pod.ts";
import type { PodContext } from "./pod-context.ts";
import type { PodRecord } from "./pod-record.ts";
import { assertSole } from "./volume-leases.ts";

/** What follows from the wish of a pod's Sandbox. */
export function planPodSleep(observed: ObservedPod): SleepPlan {
  const { pod, sleep, nowMs } = observed;
  const wasAsked = findCondition(pod.status?.conditions, asleepCondition) !== undefined;
  return planSleep({ ...sleep, isWhole: isWhole(observed), wasAsked, nowMs });
}

/** Whether everything that the pod should run does, and nothing of it is being ended. */
function isWhole({ pod, record, runtime }: ObservedPod): boolean {
  // Memory that is still being read cannot be saved.
  if (record?.isPrepared !== true || record.restore?.state === "restoring") return false;
  const wanted = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? []).filter(isSidecar)];
  return wanted.every(({ name }) => {
    const run = record.containers[name];
    // An agent that was killed during a start may have written down no time for it; what runs is what the runtime says.
    const isLive = run !== undefined && run.end === undefined && run.stopping === undefined;
    return isLive && runtime.get(run.hostId)?.status === "running";
  });
}

/** Carries out a step of a pod's sleep. */
export function applyPodSleep(context: PodContext, pod: Pod, step: SleepStep, signal: AbortSignal): Promise<void> {
  const record = context.records.get(pod.metadata.uid ?? "");
  if (record === undefined) return Promise.resolve();
  const runners = () => Object.values(record.containers).flatMap(({ hostId }) => context.probes.get(hostId) ?? []);
  const { host, clock, sleep, rules } = context;
  const parts = {
    host,
    clock,
    sleep,
    applyRules: () => rules.apply(),
    assertSavable: async () => {
      assertSole(context, record);
      await context.restoreTest.passed(signal);
    },
    pauseProbes: () => runners().forEach((runner) => runner.pause()),
    resumeProbes: () => runners().forEach((runner) => runner.resume()),
  };
  const key = record.sandboxUid ?? record.uid;
  return context.turns.run(key, async () => {
    const falls = step.do === "freeze" || step.do === "save";
    const beforeBytes = falls ? await context.memory.resident(record.cgroup, signal) : undefined;
    await applySleep(parts, sleeperOf(record), step, signal);
    const said = memoryUseOf(pod);
    if (!falls) context.memory.woke(record, said);
    else if (sleep.isStill(record.uid)) await context.memory.slept(record, { said, beforeBytes }, signal);
  });
}

/** Asks the host about a pod of which a verb's answer was lost. */
export async function settleSleep(context: PodContext, record: PodRecord, signal: AbortSignal): Promise<void> {
  if (context.sleep.isUnsure(record.uid)) await lookAtSleep(context, sleeperOf(record), signal);
}

/** Takes over what an earlier agent left asleep: the freezer and the disk say how far each pod had come. */
export async function recoverSleep({ host, records, sleep, signal }: PodContext): Promise<void> {
  const saved = await host.listSaved(signal);
  const frozen = await Promise.all(
    records.all().map(async (record) => {
      if (!record.isPrepared || record.isHibernated === true) return false;
      const stats = await host.cgroupStats({ id: record.cgroup }, signal).catch(() => undefined);
      return stats?.frozen === true;
    }),
  );
  for (const [index, record] of records.all().entries()) {
    if (record.isHibernated === true) continue;
    const { uid, containers, saved: name } = sleeperOf(record);
    const own = saved.find((state) => state.id === name && isMemoryOf(state, containers));
    const isFrozen = frozen[index] === true;
    if (isFrozen || own !== undefined) sleep.set(uid, { isFrozen, ...(own !== undefined && { saved: own }) });
  }
}

/** What the saved memory of a Sandbox is called. */
export function savedIdOf(sandboxUid: string): string {
  return podHostId(sandboxUid);
}

/** A pod's sandbox, as sleep sees it. */
function sleeperOf({ uid, cgroup, pauseId, containers, sandboxUid }: PodRecord): Sleeper {
  const ids = Object.values(containers).map(({ hostId }) => hostId);
  const all = pauseId === undefined ? ids : [pauseId, ...ids];
  return { uid, cgroup, root: all[0] ?? "", containers: all, saved: savedIdOf(sandboxUid ?? uid) };
}
