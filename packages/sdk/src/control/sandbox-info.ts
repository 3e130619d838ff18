import { crashLoopCondition } from "@agent-sandbox/api/crash-loop";
import type { Sandbox as SandboxObject } from "@agent-sandbox/api/kinds.gen";
import type { Condition } from "@agent-sandbox/api/meta";
import { sandboxPhase } from "@agent-sandbox/api/sandbox-phase";
import { conditionOf } from "./verdict.ts";

/** The state of a sandbox in one word. */
export type SandboxState =
  | "ready"
  | "starting"
  | "suspended"
  | "crash-loop"
  | "finished"
  | "failed"
  | "expired"
  | "deleting";

/** A sandbox, described. */
export interface SandboxInfo {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  readonly image: string;
  readonly state: SandboxState;
  /** Why it is in that state, in one word, as its Ready or CrashLoop condition says. */
  readonly reason: string;
  /** What that condition says. */
  readonly message: string;
  readonly createdAt: Date | undefined;
  /** When it is deleted; undefined where it never is. */
  readonly shutdownAt: Date | undefined;
  readonly addresses: readonly string[];
  readonly node: string | undefined;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly conditions: readonly Condition[];
}

/** Describes a Sandbox object. */
export function sandboxInfo(object: SandboxObject): SandboxInfo {
  const { metadata, spec, status } = object;
  const state = sandboxState(object);
  const told = conditionOf(object, state === "crash-loop" ? crashLoopCondition : "Ready");
  return {
    name: metadata.name ?? "",
    namespace: metadata.namespace ?? "",
    uid: metadata.uid ?? "",
    image: spec.podTemplate.spec.containers?.[0]?.image ?? "",
    state,
    reason: told?.reason ?? "",
    message: told?.message ?? "",
    createdAt: dateOf(metadata.creationTimestamp),
    shutdownAt: dateOf(spec.shutdownTime),
    addresses: status?.podIPs ?? [],
    node: status?.nodeName,
    labels: metadata.labels ?? {},
    annotations: metadata.annotations ?? {},
    conditions: status?.conditions ?? [],
  };
}

/** The state of a Sandbox object in one word. */
export function sandboxState(object: SandboxObject): SandboxState {
  const { phase, isObserved } = sandboxPhase(object);
  switch (phase) {
    case "ready":
      // A condition about an older spec says nothing about the change that was just made.
      return isObserved ? "ready" : "starting";
    case "starting":
    case "restoring":
      return "starting";
    case "suspending":
    case "suspended":
    case "frozen":
    case "hibernated":
    case "archived":
      return isObserved ? "suspended" : "starting";
    case "restore-failed":
    case "failed":
      return "failed";
    case "crash-loop":
    case "finished":
    case "expired":
    case "deleting":
      return phase;
    default:
      return phase satisfies never;
  }
}

function dateOf(text: string | undefined): Date | undefined {
  return text === undefined ? undefined : new Date(text);
}
