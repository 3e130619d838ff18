import type { PodFailurePolicy, PodTemplate, SandboxSpec } from "@agent-sandbox/api/kinds.gen";
import type { Engine } from "../engine/engine.ts";
import type { EngineOptions } from "../engine/engine-options.ts";

/** Which engine and namespace a call is about, and its end. */
export interface CallTarget {
  /** An engine from `findEngine`, or how to find one; default: the order of the README. */
  readonly engine?: Engine | EngineOptions;
  /** Default: the engine's. */
  readonly namespace?: string;
  readonly signal?: AbortSignal;
}

/** How long to wait for a sandbox to become ready, and what to call meanwhile. */
export interface WaitOptions {
  /** How long the sandbox may take to become ready; default 180,000. 0: do not wait. */
  readonly readyTimeoutMs?: number;
  /** Called with what the sandbox waits for, whenever that changes. */
  readonly onProgress?: (text: string) => void;
}

/** How long to wait for a state other than ready. */
export interface StateWaitOptions {
  /** How long it may take to get there; then `wait-timeout`. */
  readonly waitTimeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** Storage that outlives suspension. */
export interface Volume {
  /** Where it is mounted. */
  readonly path: string;
  /** A Kubernetes quantity, for example `10Gi`. */
  readonly size: string;
  readonly storageClass?: string;
}

/** Options of `Sandbox.create`. */
export interface CreateOptions extends CallTarget, WaitOptions {
  /** An OCI image; default `host` on the one-machine engine: this machine's own `/usr`, read-only. */
  readonly image?: string;
  /** Default: a random one. */
  readonly name?: string;
  /** Name of a snapshot to start from. Without `image`, what runs is taken from the sandbox that it was taken of. */
  readonly fromSnapshot?: string;
  /** The sandbox's environment, seen by every command. */
  readonly env?: Readonly<Record<string, string>>;
  /** Limit, as a Kubernetes quantity: `500m`, `2`. */
  readonly cpu?: string | number;
  /** Limit, as a Kubernetes quantity: `512Mi`, `4Gi`. */
  readonly memory?: string;
  /** Limit of what may be written outside volumes: `1Gi`. */
  readonly disk?: string;
  readonly volumes?: readonly Volume[];
  /** The sandbox's own long-running process. Default: none, it waits for commands. `image`: what the image says. */
  readonly command?: readonly string[] | "image";
  /** Working directory of the sandbox and its commands. */
  readonly workdir?: string;
  /** The sandbox is deleted after this long. Default: never. */
  readonly ttlMs?: number;
  /** Asleep after this long without activity, awake again on traffic. Default: never. */
  readonly autoSuspendMs?: number;
  /** What sleep does to processes. Default `Stop`. */
  readonly suspensionStrategy?: "Stop" | "Freeze" | "Hibernate";
  /** A frozen sandbox hibernates after this long without activity; with `autoSuspendMs` and `Freeze`. Default: never. */
  readonly hibernateAfterMs?: number;
  /** Whether traffic wakes it when it sleeps. Default: `OnTraffic` with `autoSuspendMs`, else `Never`. */
  readonly wakePolicy?: "OnTraffic" | "Never";
  /** Whether a Pod that failed is replaced. Default: it is not. */
  readonly podFailurePolicy?: PodFailurePolicy;
  /** Runtime class: `gvisor`, `runc`, `kata-qemu` and so on. Default: the engine's. */
  readonly runtime?: string;
  /** Labels of the Sandbox, for `Sandbox.list`. */
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** Laid under everything above: fields of the Pod that have no option here. */
  readonly podTemplate?: Omit<Partial<PodTemplate>, "spec"> & { readonly spec?: Partial<PodTemplate["spec"]> };
  /** Laid over everything above. */
  readonly spec?: Partial<SandboxSpec>;
}

/** Options of `Sandbox.claim`. */
export interface ClaimOptions extends CallTarget, WaitOptions {
  /** The claim's name; default: a random one. */
  readonly name?: string;
  /** Needs a template that allows it, and makes the start a cold one unless the template says otherwise. */
  readonly env?: Readonly<Record<string, string>>;
  readonly ttlMs?: number;
  readonly startPolicy?: "WarmOrCold" | "WarmOnly" | "ColdOnly";
  readonly labels?: Readonly<Record<string, string>>;
}

/** Options of `snapshot`; the default of `waitTimeoutMs` is 300,000. */
export interface SnapshotOptions extends StateWaitOptions {
  /** Default: the sandbox's name and a random end. */
  readonly name?: string;
  /** Whether processes and memory are saved with the files. Default: where the sandbox has any. */
  readonly memory?: boolean;
  /** The snapshot is deleted after this long. Default: never. */
  readonly ttlMs?: number;
}

/** Options of `fork`. */
export interface ForkOptions extends WaitOptions {
  /** The names begin with it and end with `-1`, `-2` and so on. Default: the sandbox's name and a random end. */
  readonly name?: string;
  /** Whether processes and memory are copied with the files. Default: where the sandbox has any. */
  readonly memory?: boolean;
  /** The forks are deleted after this long. Default: when the sandbox would be. */
  readonly ttlMs?: number;
  readonly signal?: AbortSignal;
}
