import type { Condition, KubeObject } from "./meta.ts";

/** A number of Sandboxes that run and wait for claims. */
export interface SandboxWarmPool extends KubeObject {
  apiVersion: "extensions.agents.x-k8s.io/v1beta1";
  kind: "SandboxWarmPool";
  spec: SandboxWarmPoolSpec;
  status?: SandboxWarmPoolStatus;
}

/** What the user wants. */
export interface SandboxWarmPoolSpec {
  /** Unclaimed members; absent means 1. */
  replicas?: number;
  sandboxTemplateRef: { name: string };
  updateStrategy?: WarmPoolUpdateStrategy;
}

/** How members follow their template; absent means OnReplenish. */
export interface WarmPoolUpdateStrategy {
  type?: "Recreate" | "OnReplenish" | "RollingUpdate";
  rollingUpdate?: WarmPoolRollingUpdate;
}

/** Bounds of a rolling update: a count, or a percentage of the replicas. */
export interface WarmPoolRollingUpdate {
  maxUnavailable?: number | string;
  maxSurge?: number | string;
}

/** What the controller observed; zero counts are absent. */
export interface SandboxWarmPoolStatus {
  replicas?: number;
  readyReplicas?: number;
  selector?: string;
  observedGeneration?: number;
  /** Members made from the template as it is; written only while the strategy is RollingUpdate. */
  updatedReplicas?: number;
  conditions?: Condition[];
}

/** A pool in the deprecated version: `replicas` is required. */
export interface SandboxWarmPoolV1alpha1 extends KubeObject {
  apiVersion: "extensions.agents.x-k8s.io/v1alpha1";
  kind: "SandboxWarmPool";
  spec: SandboxWarmPoolSpec & { replicas: number };
  status?: Omit<SandboxWarmPoolStatus, "observedGeneration">;
}
