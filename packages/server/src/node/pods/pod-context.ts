import type { Pod, PodOwner, Sandbox } from "@agent-sandbox/api";
import type { Client, Clock } from "@agent-sandbox/kube";
import type { RecordShelf } from "../../durable/record-shelf.ts";
import type { Logger } from "../../telemetry/logger.ts";
import type { NodeConfig } from "../config.ts";
import type { EventRecorder } from "../event-recorder.ts";
import type { Host } from "../host/host.ts";
import type { ImagePuller } from "../images/image-puller.ts";
import type { ImageStore } from "../images/image-store.ts";
import type { MemoryUses } from "../memory/memory-uses.ts";
import type { AddressPool } from "../network/address-pool.ts";
import type { RuleKeeper } from "../network/rule-keeper.ts";
import type { SlotPool } from "../network/slot-pool.ts";
import type { NodeFacts } from "../pod-spec/downward-api.ts";
import type { ProbeDialers } from "../probes/probe-check.ts";
import type { ProbeRunner } from "../probes/probe-runner.ts";
import type { Keyed, RecordStore } from "../record-store.ts";
import type { SleepStates } from "../sleep/sleep-states.ts";
import type { Turns } from "../turns.ts";
import type { TokenCache } from "../volumes/token-cache.ts";
import type { DaemonWatch } from "./daemon-watch.ts";
import type { ExitWatcher } from "./exit-watcher.ts";
import type { PodRecordStore } from "./pod-record-store.ts";
import type { RestoreTest } from "./restore-test.ts";
import type { SnapshotRecord } from "./snapshot-record.ts";
import type { WaitingSandboxes } from "./waiting-sandboxes.ts";

/** A short command inside a running container, for probes and hooks. */
export type CommandInContainer = (
  hostId: string,
  command: readonly string[],
  signal: AbortSignal,
) => Promise<{ readonly exitCode: number; readonly output: string }>;

/** The parts of the node that pods are run with. */
export interface PodContext {
  readonly client: Client;
  readonly host: Host;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly config: NodeConfig;
  readonly node: NodeFacts;
  readonly events: EventRecorder;
  readonly records: PodRecordStore;
  /** The snapshots that this node has taken. */
  readonly snapshots: RecordStore<SnapshotRecord>;
  /** Volumes, by the host's name, whose PersistentVolume was seen to go and whose data may still be there. */
  readonly doomedVolumes: RecordStore<Keyed>;
  /** That this machine restores what it saves. */
  readonly restoreTest: RestoreTest;
  /** Who changes how a Sandbox stands, or copies its files, does so alone: by its uid. */
  readonly turns: Turns;
  /** Records of this node that could not be read. */
  readonly shelf: RecordShelf;
  readonly exits: ExitWatcher;
  readonly slots: SlotPool;
  readonly waiting: WaitingSandboxes;
  readonly addresses: AddressPool;
  readonly rules: RuleKeeper;
  readonly images: ImageStore;
  readonly puller: ImagePuller;
  readonly tokens: TokenCache;
  readonly dialers: ProbeDialers;
  readonly daemons: DaemonWatch;
  /** Called whenever a pod has given back what it had. */
  readonly afterRelease: (() => void)[];
  /** What this agent has made for a first start and nothing has used yet, by id; whatever is not here is looked at again before a start. */
  readonly fresh: { readonly pods: Set<string>; readonly roots: Set<string> };
  /** Why the disk of a pod is full, by uid; those of others are not. */
  readonly fullDisks: Map<string, string>;
  /** What the pods take of the node's memory. */
  readonly memory: MemoryUses;
  /** By container host id; only running containers have one. */
  readonly probes: Map<string, ProbeRunner>;
  /** How far the pods are asleep. */
  readonly sleep: SleepStates;
  /** Uids of the pods whose restore is being followed. */
  readonly restores: Set<string>;
  readonly runCommand: CommandInContainer;
  /** The Sandbox that a pod belongs to, as far as that is proven. */
  readonly ownerOf: (pod: Pod) => PodOwner;
  /** Address that a Sandbox has for life. */
  readonly sandboxAddress: (sandbox: Sandbox) => string | undefined;
  /** Asks for another pass over a pod. */
  readonly wake: (key: { readonly namespace: string; readonly name: string }) => void;
  /** Ends with the agent. */
  readonly signal: AbortSignal;
}
