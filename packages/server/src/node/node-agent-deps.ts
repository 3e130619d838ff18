import type { Client, Clock } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import type { ArchiveWork } from "./archive/archive-work.ts";
import type { NodeConfig } from "./config.ts";
import type { Host } from "./host/host.ts";
import type { Fetch } from "./images/registry-client.ts";
import type { PodContext } from "./pods/pod-context.ts";
import type { ProbeDialers } from "./probes/probe-check.ts";
import type { SandboxdClient, SandboxdRun } from "./streams/sandboxd-client.ts";

/** What the agent is made of. The optional parts have real defaults; tests replace them. */
export interface NodeAgentDeps {
  readonly client: Client;
  readonly host: Host;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  readonly config: NodeConfig;
  /** What the node does for archives, with what the agent has; absent: the engine was given no archive. */
  readonly archive?: (context: PodContext) => ArchiveWork;
  readonly fetch?: Fetch;
  readonly dialers?: ProbeDialers;
  /** Bytes that are free on the disk of the data directory. */
  readonly freeBytes?: () => Promise<number>;
  /** Undefined from it: no daemon can be dialled there. */
  readonly sandboxdAt?: (run: SandboxdRun) => SandboxdClient | undefined;
  /** Unix socket of the local admin API; absent: none. */
  readonly adminSocket?: string;
  /** Called when the port that needs root is bound, and before any file is opened and any other socket: main gives up root here. */
  readonly onBound?: () => void | Promise<void>;
}
