import type { PersistentVolumeClaimSpec, PodSpec } from "./builtin.gen.ts";
import type { Condition, KubeObject } from "./meta.ts";

/** A singleton, stateful environment: one Pod, its volumes, its address. */
export interface Sandbox extends KubeObject {
  apiVersion: "agents.x-k8s.io/v1beta1";
  kind: "Sandbox";
  spec: SandboxSpec;
  status?: SandboxStatus;
}

/** The part of a Sandbox's spec that a template gives it. */
export interface SandboxBlueprint {
  podTemplate: PodTemplate;
  volumeClaimTemplates?: VolumeClaimTemplate[];
  /** Absent: keep what exists and create nothing. True: ensure a headless Service. False: remove it. */
  service?: boolean;
  suspensionStrategy?: SuspensionStrategy;
  autoSuspension?: AutoSuspension;
  wakePolicy?: "OnTraffic" | "Never";
  restoreFrom?: RestoreFrom;
  podFailurePolicy?: PodFailurePolicy;
}

/** The Pod to make; only labels and annotations exist as metadata. */
export interface PodTemplate {
  metadata?: PodTemplateMetadata;
  spec: PodSpec;
}

/** Labels and annotations that reach the Pod. */
export interface PodTemplateMetadata {
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

/** A PersistentVolumeClaim to make, named `<name>-<sandbox>`. */
export interface VolumeClaimTemplate {
  metadata?: { name?: string; labels?: Record<string, string>; annotations?: Record<string, string> };
  spec: PersistentVolumeClaimSpec;
}

/** What the user wants. */
export interface SandboxSpec extends SandboxBlueprint {
  ttlSecondsAfterFinished?: number;
  shutdownTime?: string;
  shutdownPolicy?: "Delete" | "Retain";
  operatingMode?: OperatingMode;
}

/** Desired mode of a Sandbox; absent means Running. */
export type OperatingMode = "Running" | "Suspended";

/** What suspension does to the processes; absent means Stop. */
export interface SuspensionStrategy {
  type: "Stop" | "Freeze" | "Hibernate";
}

/** Puts an idle Sandbox to sleep. */
export interface AutoSuspension {
  inactivityTimeoutSeconds: number;
}

/** Start from a saved state instead of from the image. */
export interface RestoreFrom {
  snapshotName: string;
}

/** What happens to a Sandbox whose Pod failed; absent means Never. */
export interface PodFailurePolicy {
  type: "Never" | "Recreate";
  /** How often a failed Pod is replaced before the Sandbox stays failed; default 6. */
  retriesMax?: number;
  /** Delay before the first replacement, doubling up to five minutes; default 10. */
  backoffSeconds?: number;
}

/** What the controller observed. */
export interface SandboxStatus {
  conditions?: Condition[];
  service?: string;
  serviceFQDN?: string;
  selector?: string;
  podIPs?: string[];
  nodeName?: string;
  /** Uid of the Pod that the controller made or adopted last. It alone has the Sandbox's layer, address and routes; it stays when that Pod goes. */
  podUID?: string;
}

/** A Sandbox in the deprecated version: `replicas` instead of a mode. */
export interface SandboxV1alpha1 extends KubeObject {
  apiVersion: "agents.x-k8s.io/v1alpha1";
  kind: "Sandbox";
  spec: SandboxSpecV1alpha1;
  status?: SandboxStatusV1alpha1;
}

/** Spec in the deprecated version. */
export interface SandboxSpecV1alpha1 extends SandboxBlueprint {
  ttlSecondsAfterFinished?: number;
  shutdownTime?: string;
  shutdownPolicy?: "Delete" | "Retain";
  /** 0 or 1. */
  replicas?: number;
}

/** Status in the deprecated version. */
export interface SandboxStatusV1alpha1 extends Omit<SandboxStatus, "nodeName"> {
  replicas?: number;
}
