import { ignore, keyOf, nodes as nodeResource, type Pod, parseKey, pods as podResource } from "@agent-sandbox/api";
import { type Controller, defineController, done } from "@agent-sandbox/kube";
import { byNode, type Caches } from "../caches.ts";
import { onChange } from "../on-change.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";

/** Whether no node will end the Pod: its node is gone, or it was never placed and is to go. Exported for tests. */
export function planPodGarbage(pod: Pod, nodeExists: boolean): "delete" | "keep" {
  const isPlaced = (pod.spec?.nodeName ?? "") !== "";
  if (isPlaced) return nodeExists ? "keep" : "delete";
  return pod.metadata.deletionTimestamp === undefined ? "keep" : "delete";
}

/** Removes Pods that no node will ever remove. Keys are Pods. */
export function podGarbage(context: StandinContext, { pods, nodes }: Caches): Controller {
  return defineController({
    name: "pod-garbage",
    clock: context.clock,
    telemetry: context.telemetry,
    workers: standinWorkers,
    caches: [pods, nodes],
    observe: (queue) => {
      onChange(pods, (pod) => queue.add(keyOf(pod)));
      onChange(nodes, ({ metadata }) => {
        for (const pod of pods.byIndex(byNode, metadata.name)) queue.add(keyOf(pod));
      });
    },
    reconcile: async (key, signal) => {
      const pod = pods.get(key);
      if (pod === undefined) return done;
      const nodeName = pod.spec?.nodeName ?? "";
      if (planPodGarbage(pod, nodes.get(nodeName) !== undefined) === "keep") return done;
      // A node that registered a moment ago may not be in the cache yet: a running sandbox must not go for that.
      if (nodeName !== "" && (await nodeIsThere(context, nodeName, signal))) return done;
      const options = { uid: pod.metadata.uid ?? "", gracePeriodSeconds: 0, signal };
      await context.client.delete(podResource, parseKey(key), options).catch(ignore("NotFound"));
      return { kind: "done", actions: 1 };
    },
  });
}

async function nodeIsThere({ client }: StandinContext, name: string, signal: AbortSignal): Promise<boolean> {
  return (await client.get(nodeResource, { name }, { signal }).catch(ignore("NotFound"))) !== undefined;
}
