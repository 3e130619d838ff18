import type { Condition, KubeObject } from "./meta.ts";

/** One saved state of a Sandbox. */
export interface SandboxSnapshot extends KubeObject {
  apiVersion: "agent-sandbox.dev/v1alpha1";
  kind: "SandboxSnapshot";
  spec: SandboxSnapshotSpec;
  status?: SandboxSnapshotStatus;
}

/** What to save, and for how long. */
export interface SandboxSnapshotSpec {
  sandboxName: string;
  /** Absent means true: processes and memory are part of the snapshot. */
  memory?: boolean;
  /** Absent means Resume: the Sandbox goes on after the snapshot. */
  afterSnapshot?: "Resume" | "Suspend";
  /** Absent: kept until deleted. */
  ttlSecondsAfterCreation?: number;
}

/** What was saved. */
export interface SandboxSnapshotStatus {
  /** Conditions; `Ready` says whether it can be restored, or why not. */
  conditions?: Condition[];
  observedGeneration?: number;
  sandboxUID?: string;
  nodeName?: string;
  /** When the state was frozen. */
  takenAt?: string;
  sizeBytes?: number;
  memorySizeBytes?: number;
  /** The snapshot that the Sandbox itself was restored from. */
  parent?: { name: string; uid: string };
  /** Digest of the image the saved root file system stands on. */
  imageDigest?: string;
  /** Version of the runtime that wrote the memory image; another version refuses it. */
  runtimeVersion?: string;
  /** Handler of the runtime class. */
  runtimeHandler?: string;
}
