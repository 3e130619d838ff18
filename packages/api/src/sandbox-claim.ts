import type { Condition, KubeObject } from "./meta.ts";
import type { PodTemplateMetadata, VolumeClaimTemplate } from "./sandbox.ts";

/** A request for one Sandbox from a pool. */
export interface SandboxClaim extends KubeObject {
  apiVersion: "extensions.agents.x-k8s.io/v1beta1";
  kind: "SandboxClaim";
  spec: SandboxClaimSpec;
  status?: SandboxClaimStatus;
}

/** What the user wants. */
export interface SandboxClaimSpec extends SandboxClaimOptions {
  warmPoolRef: { name: string };
  lifecycle?: ClaimLifecycle;
  additionalPodMetadata?: PodTemplateMetadata;
  env?: ClaimEnvVar[];
  volumeClaimTemplates?: VolumeClaimTemplate[];
}

/** When a claim ends and what happens then; absent means never. */
export interface ClaimLifecycle {
  shutdownTime?: string;
  ttlSecondsAfterFinished?: number;
  shutdownPolicy?: "Delete" | "DeleteForeground" | "Retain";
}

/** One literal environment variable for one container. */
export interface ClaimEnvVar {
  name: string;
  value: string;
  /** Default: the first regular container. */
  containerName?: string;
}

/** Fields of ours: typed, optional, the same in both versions. */
export interface SandboxClaimOptions {
  startPolicy?: "WarmOrCold" | "WarmOnly" | "ColdOnly";
  bindTimeoutSeconds?: number;
}

/** What the controller observed. */
export interface SandboxClaimStatus {
  conditions?: Condition[];
  sandbox?: { name?: string; podIPs?: string[] };
}

/** A claim in the deprecated version: names a template and, perhaps, a pool. */
export interface SandboxClaimV1alpha1 extends KubeObject {
  apiVersion: "extensions.agents.x-k8s.io/v1alpha1";
  kind: "SandboxClaim";
  spec: SandboxClaimSpecV1alpha1;
  status?: SandboxClaimStatus;
}

/** Spec in the deprecated version. */
export interface SandboxClaimSpecV1alpha1 extends SandboxClaimOptions {
  sandboxTemplateRef: { name: string };
  /** `none`: always cold. `default`: any pool of the template. Anything else: that pool. */
  warmpool?: string;
  lifecycle?: ClaimLifecycle;
  additionalPodMetadata?: PodTemplateMetadata;
  env?: ClaimEnvVar[];
}
