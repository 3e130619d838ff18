import {
  isControlledBy,
  isNamedBy,
  type KubeObject,
  pods,
  restoreOf,
  sandboxes,
  sleepAnswerOf,
} from "@agent-sandbox/api";
import type { KubeRequest, Transport } from "@agent-sandbox/kube";
import type { Ground } from "./ground.ts";
import { actionOf } from "./logging-transport.ts";
import { condition } from "./objects.ts";
import { SleepNode } from "./sleep-node.ts";

/** Looks at every delete of a Pod in the moment it reaches the API server, and notes those that would lose memory that somebody asked to keep. */
export function guardingMemory(transport: Transport, ground: Ground, problems: string[]): Transport {
  return {
    request: (request) => {
      if (actionOf(request) === "delete pods") problems.push(...lossOf(request, ground));
      return transport.request(request);
    },
    upgrade: (request) => transport.upgrade(request),
    close: () => transport.close(),
  };
}

function lossOf({ path, body = "" }: KubeRequest, ground: Ground): string[] {
  const name = path.split("?")[0]?.split("/").at(-1);
  const { preconditions = {} } = JSON.parse(body.toString() || "{}") as { preconditions?: Record<string, string> };
  const pod = ground.read(pods).find(({ metadata }) => metadata.name === name);
  const sandbox = pod && ground.read(sandboxes).find((each) => isControlledBy(pod, sandboxes, each));
  if (pod === undefined || sandbox === undefined || preconditions["uid"] !== pod.metadata.uid) return [];
  const { resourceVersion = pod.metadata.resourceVersion } = preconditions;
  if (resourceVersion !== pod.metadata.resourceVersion || !isNamedBy(pod, sandbox) || isLeaving(pod)) return [];
  const isDeep = (sandbox.spec.suspensionStrategy?.type ?? "Stop") !== "Stop";
  if (!isDeep || isLeaving(sandbox) || condition(sandbox, "Ready")?.reason === "SandboxExpired") return [];
  if (pod.status?.phase !== "Running" || restoreOf(pod)?.state === "failed" || !SleepNode.isOurs(pod)) return [];
  const { sleep } = sandbox.status ?? {};
  const answer = sleepAnswerOf(pod);
  if (sleep?.savedAt !== undefined && answer?.reason === "Saved" && answer.id === sleep.id) return [];
  return [`the memory of sandbox ${sandbox.metadata.name} was not saved when its pod was deleted`];
}

function isLeaving({ metadata }: KubeObject): boolean {
  return metadata.deletionTimestamp !== undefined;
}
