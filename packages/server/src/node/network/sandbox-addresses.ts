import {
  annotationKeys,
  formatTimestampMs,
  isConditionTrue,
  labelKeys,
  nameHash,
  type Pod,
  type Sandbox,
  sandboxPhase,
  wakePolicyOf,
} from "@agent-sandbox/api";
import type { Endpoint } from "./rule-sources.ts";

/** The address of a Sandbox, if a stand-in has given it one. */
export function addressOf(sandbox: Sandbox | undefined): string | undefined {
  const address = sandbox?.metadata.annotations?.[annotationKeys.address];
  return address !== undefined && /^\d{1,3}(\.\d{1,3}){3}$/.test(address) ? address : undefined;
}

/** Whether traffic may wake a Sandbox that has no Pod here: it sleeps, or is on its way; one that has ended is not held for. */
export function wakesOnTraffic(sandbox: Sandbox): boolean {
  return wakePolicyOf(sandbox) === "OnTraffic" && !sandboxPhase(sandbox).isTerminal;
}

/** Whether a pod takes connections: it is Ready, and it is not being deleted. */
export function isServing(pod: Pod): boolean {
  return pod.metadata.deletionTimestamp === undefined && isConditionTrue(pod.status?.conditions, "Ready");
}

/** A sleeping Sandbox as policies see it: with the labels its pod would have. */
export function sleepingEndpoint(sandbox: Sandbox): Endpoint | undefined {
  const address = addressOf(sandbox);
  if (address === undefined) return undefined;
  const template = sandbox.spec.podTemplate;
  const own = { [labelKeys.sandboxNameHash]: nameHash(sandbox.metadata.name) };
  return {
    namespace: sandbox.metadata.namespace ?? "",
    labels: { ...template?.metadata?.labels, ...own },
    address,
    ports: [],
  };
}

/** The merge patch that reports activity, which is what wakes a sleeping Sandbox. */
export function activityPatch(nowMs: number): { metadata: { annotations: Record<string, string> } } {
  return { metadata: { annotations: { [annotationKeys.lastActivityAt]: formatTimestampMs(nowMs) } } };
}
