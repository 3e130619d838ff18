import { memoryUseOf, namespacedKey, type Pod } from "@agent-sandbox/api";
import { type Controller, type ControllerTelemetry, defineLoop, type Informer } from "@agent-sandbox/kube";
import type { PodContext } from "../pods/pod-context.ts";

/** How often it is asked whose memory is due to be looked at. */
const looksEveryMs = 5_000;

/** Pods that are looked at in one go: a node of a thousand looks at each of them once a minute, and a fuller one less often. */
const looksMax = 100;

/** Has every pod say what it takes of the node's memory, in steps of a tenth: `MemoryUses` says how often that is read. */
export function memoryKeeper(
  context: PodContext,
  pods: Pick<Informer<Pod>, "get">,
  telemetry: ControllerTelemetry,
): Controller {
  const { records, memory, sleep, clock, wake, signal } = context;
  const run = async (): Promise<void> => {
    const due = records
      .all()
      .filter(({ uid, isPrepared, isHibernated }) => isPrepared && isHibernated !== true && memory.isDue(uid))
      .toSorted((a, b) => memory.lookedAtMs(a.uid) - memory.lookedAtMs(b.uid))
      .slice(0, looksMax);
    for (const record of due) {
      const pod = pods.get(namespacedKey(record.namespace, record.name));
      if (pod?.metadata.uid !== record.uid) continue;
      const said = memoryUseOf(pod);
      if (await memory.look(record, { said, isStill: sleep.isStill(record.uid) }, signal)) wake(record);
    }
  };
  return defineLoop({ name: "node-memory", clock, telemetry, everyMs: looksEveryMs, run });
}
