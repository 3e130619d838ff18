import type { MemoryUse, Pod } from "@agent-sandbox/api";
import type { ContainerState } from "../host/container.ts";
import type { ImageState } from "../images/image-state.ts";
import type { ProbeVerdict } from "../probes/probe-verdict.ts";
import type { SleepQuestion, SleepStep } from "../sleep/plan-sleep.ts";
import type { PodRecord } from "./pod-record.ts";
import type { Refusal } from "./refusal.ts";

/** Why something the pod needs is not there yet. */
export interface Obstacle {
  readonly reason: string;
  readonly message: string;
  /** A watch tells when it is there; everything else is looked at again. */
  readonly isWatched?: boolean;
}

/** Plain values from which a pod's next steps follow. */
export interface ObservedPod {
  readonly pod: Pod;
  readonly record: PodRecord | undefined;
  /** The runtime's containers, by host id; absent ones were never started or are removed. */
  readonly runtime: ReadonlyMap<string, ContainerState>;
  /** By container name. */
  readonly images: ReadonlyMap<string, ImageState>;
  /** By container name, for running containers. */
  readonly probes: ReadonlyMap<string, ProbeVerdict>;
  /** Host ids of runs whose daemon has answered. */
  readonly daemons: ReadonlySet<string>;
  /** By container name: why it cannot be configured (a missing secret, an unknown user). */
  readonly configObstacles: ReadonlyMap<string, Obstacle>;
  /** Why the pod as a whole cannot be prepared (a missing volume, no address). */
  readonly podObstacle?: Obstacle;
  readonly refusal?: Refusal;
  /** What its Sandbox asks for, and how far the pod is asleep. */
  readonly sleep: Pick<SleepQuestion, "wish" | "state">;
  /** Why one of its file systems is full, if one is. */
  readonly diskFull?: string;
  /** What it takes of the node's memory, where that is to be said. */
  readonly memory?: MemoryUse;
  readonly nodeAddress: string;
  readonly nowMs: number;
}

/** One thing to do for a pod. Steps of one plan do not depend on each other's results. */
export type PodStep =
  | { readonly do: "pull-image"; readonly container: string }
  | { readonly do: "prepare" }
  | { readonly do: "start-container"; readonly container: string; readonly attempt: number; readonly crashes: number }
  | { readonly do: "note-end"; readonly container: string }
  | { readonly do: "stop-container"; readonly container: string; readonly graceMs: number; readonly reason: string }
  | { readonly do: "kill-container"; readonly container: string }
  | SleepStep
  | { readonly do: "teardown" }
  | { readonly do: "release" }
  | { readonly do: "forget" };
