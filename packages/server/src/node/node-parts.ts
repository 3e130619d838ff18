import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { namespacedKey, type Pod, podOwnerOf, type Sandbox } from "@agent-sandbox/api";
import type { WorkQueue } from "@agent-sandbox/kube";
import { RecordShelf } from "../durable/record-shelf.ts";
import { openEventRecorder } from "./event-recorder.ts";
import type { HostInfo } from "./host/host.ts";
import { recordPull } from "./image-events.ts";
import { ImagePuller, type PullEvent } from "./images/image-puller.ts";
import { ImageStore } from "./images/image-store.ts";
import { RegistryFiles } from "./images/registry-settings.ts";
import { MemoryUses } from "./memory/memory-uses.ts";
import { AddressPool } from "./network/address-pool.ts";
import { compileRules, podEndpoint } from "./network/compile-rules.ts";
import { RuleKeeper } from "./network/rule-keeper.ts";
import type { Endpoint } from "./network/rule-sources.ts";
import { addressOf, isServing, sleepingEndpoint, wakesOnTraffic } from "./network/sandbox-addresses.ts";
import { SlotPool } from "./network/slot-pool.ts";
import type { NodeAgentDeps } from "./node-agent-deps.ts";
import type { NodeCaches } from "./node-caches.ts";
import { DaemonWatch } from "./pods/daemon-watch.ts";
import { ExitWatcher } from "./pods/exit-watcher.ts";
import { OwnerWait } from "./pods/owner-wait.ts";
import type { PodContext } from "./pods/pod-context.ts";
import type { PodControllerOptions } from "./pods/pod-controller.ts";
import { holdsAddress } from "./pods/pod-record.ts";
import { PodRecordStore } from "./pods/pod-record-store.ts";
import { FileRefresher } from "./pods/refresh-files.ts";
import { RestoreTest } from "./pods/restore-test.ts";
import type { SnapshotRecord } from "./pods/snapshot-record.ts";
import { WaitingSandboxes } from "./pods/waiting-sandboxes.ts";
import { networkDialers } from "./probes/dialers.ts";
import { RecordStore } from "./record-store.ts";
import { SleepStates } from "./sleep/sleep-states.ts";
import { CommandRunner } from "./streams/command-runner.ts";
import { NodeBackend } from "./streams/node-backend.ts";
import { SandboxdClients } from "./streams/sandboxd-client.ts";
import { Turns } from "./turns.ts";
import { TokenCache } from "./volumes/token-cache.ts";

/** What the parts of a node are made from. */
export interface Assembly {
  readonly deps: NodeAgentDeps;
  readonly caches: NodeCaches;
  readonly queue: WorkQueue<string>;
  readonly signal: AbortSignal;
  readonly architecture: string;
  readonly info: HostInfo;
}

/** The parts of a node, connected and not yet started. */
export interface NodeParts {
  readonly context: PodContext;
  readonly backend: NodeBackend;
  readonly controller: PodControllerOptions;
}

/** Connects the parts of a node; starts nothing. */
export function assembleNode(assembly: Assembly): NodeParts {
  const { deps, caches, architecture, info } = assembly;
  const { config, host, metrics } = deps;
  const runner = new CommandRunner(host);
  const context = createContext(assembly, runner);
  const clients = new SandboxdClients();
  const sandboxdAt = deps.sandboxdAt ?? ((run) => clients.at(run));
  return {
    context,
    backend: new NodeBackend({ context, pods: caches.pods, runner, metrics, sandboxdAt }),
    controller: {
      context,
      pods: caches.pods,
      files: new FileRefresher(),
      written: new WeakMap(),
      ownerWait: new OwnerWait(),
      servicesOf: (namespace) => caches.services.byIndex("namespace", namespace),
      limits: {
        allowRunc: config.allowRunc,
        hostPathAllowList: config.hostPathAllowList,
        runtimes: info.runtimes,
        architecture,
        cgroupLimits: info.cgroupLimits,
      },
    },
  };
}

function createRestoreTest({ deps: { host, config }, info }: Assembly): RestoreTest {
  const newId = (): string => `restore-test-${randomBytes(6).toString("hex")}`;
  return new RestoreTest({ host, info, file: join(config.dataDir, "restore-test.json"), newId });
}

function createContext(assembly: Assembly, runner: CommandRunner): PodContext {
  const { deps, caches, queue, signal, info } = assembly;
  const { client, host, clock, logger, config } = deps;
  const records = new PodRecordStore(join(config.dataDir, "sandboxes"));
  const images = new ImageStore({ dataDir: config.dataDir, host, clock });
  const events = openEventRecorder({ client, clock, logger, nodeName: config.nodeName });
  const wake: PodContext["wake"] = ({ namespace, name }) => queue.add(namespacedKey(namespace, name));
  const sleep = new SleepStates();
  const compile = (): ReturnType<typeof compileRules> =>
    compileRules({
      endpoints: endpointsOf(records, caches, sleep),
      policies: caches.policies.list(),
      namespaces: caches.namespaces.list(),
    });
  const dialers = deps.dialers ?? networkDialers;
  const exits = new ExitWatcher({ host, clock, signal, onExit: (id) => wakeOwner(records, id, wake) });
  const slots = new SlotPool({
    host,
    clock,
    onError: (error) => logger.warn({ err: error }, "network slot could not be made ahead"),
    signal,
  });
  const waiting = createWaiting(assembly, { slots, exits });
  const isTaken = (address: string): boolean => caches.sandboxes.byIndex("address", address).length > 0;
  return {
    client,
    host,
    clock,
    logger,
    config,
    node: {
      name: config.nodeName,
      address: config.nodeAddress,
      cpuMillis: info.cpus * 1000,
      memoryBytes: info.memoryBytes,
      diskBytes: info.diskBytes,
    },
    events,
    records,
    snapshots: new RecordStore<SnapshotRecord>(join(config.dataDir, "snapshots")),
    restoreTest: createRestoreTest(assembly),
    doomedVolumes: new RecordStore(join(config.dataDir, "doomed-volumes")),
    turns: new Turns(),
    shelf: shelfOf(deps),
    exits,
    slots,
    waiting,
    addresses: new AddressPool({ cidr: config.podCidr, isTaken }),
    rules: new RuleKeeper({ host, compile, newRevision: () => randomBytes(8).toString("hex") }),
    images,
    puller: createPuller(assembly, { images, records, events, wake }),
    tokens: new TokenCache({ client, clock }),
    dialers,
    daemons: new DaemonWatch({ dialers, clock }),
    afterRelease: [],
    fresh: { pods: new Set(), roots: new Set() },
    fullDisks: new Map(),
    memory: new MemoryUses(host, clock),
    probes: new Map(),
    sleep,
    restores: new Set(),
    runCommand: commandRunner(records, runner),
    ownerOf: (pod) => podOwnerOf(pod, (key) => caches.sandboxes.get(key)),
    sandboxAddress: (sandbox) => addressFor(sandbox, records, caches),
    wake,
    signal,
  };
}

function createWaiting(
  { deps, info, signal }: Assembly,
  { slots, exits }: Pick<PodContext, "slots" | "exits">,
): WaitingSandboxes {
  const { host, clock, logger, config } = deps;
  return new WaitingSandboxes({
    host,
    slots,
    exits,
    clock,
    config,
    machine: { cpus: info.cpus, memoryBytes: info.memoryBytes },
    newId: () => `ahead-${randomBytes(8).toString("hex")}`,
    onError: (error) => logger.warn({ err: error }, "sandbox could not be made ahead"),
    signal,
  });
}

function commandRunner(records: PodRecordStore, runner: CommandRunner): PodContext["runCommand"] {
  return (hostId, command, signal) => {
    const runs = records.all().flatMap((record) => Object.values(record.containers));
    const run = runs.find((candidate) => candidate.hostId === hostId);
    if (run === undefined) return Promise.reject(new Error("the container is gone"));
    return runner.capture({ hostId, process: run.process }, command, signal);
  };
}

function shelfOf({ config, logger }: NodeAgentDeps): RecordShelf {
  return new RecordShelf(config.dataDir, (file, error) => {
    logger.error({ err: error, file }, "a record cannot be read and was set aside");
  });
}

/** The Sandbox's address, where no other Sandbox and no Pod has it: outside the embedded API every user may write the annotation. */
function addressFor(sandbox: Sandbox, records: PodRecordStore, caches: NodeCaches): string | undefined {
  const address = addressOf(sandbox);
  if (address === undefined || caches.sandboxes.byIndex("address", address).length > 1) return undefined;
  const isHeld = records
    .all()
    .some((record) => record.address === address && record.sandboxUid !== sandbox.metadata.uid && holdsAddress(record));
  return isHeld ? undefined : address;
}

type PullerParts = Pick<PodContext, "images" | "records" | "events" | "wake">;

function createPuller(
  { deps, caches, architecture, signal }: Assembly,
  { images, records, events, wake }: PullerParts,
): ImagePuller {
  const onChange = (key: string, event: PullEvent): void => {
    const [uid = "", container = ""] = key.split("/");
    const pod = podByUid({ records, caches, uid });
    if (pod === undefined) return;
    recordPull(events, pod, container, event);
    wake({ namespace: pod.metadata.namespace ?? "", name: pod.metadata.name });
  };
  const registries = new RegistryFiles(deps.config.settingsDir);
  return new ImagePuller({
    store: images,
    clock: deps.clock,
    architecture,
    settings: () => registries.read(),
    fetch: deps.fetch ?? fetch,
    signal,
    onChange,
  });
}

function podByUid({
  records,
  caches,
  uid,
}: {
  records: PodRecordStore;
  caches: NodeCaches;
  uid: string;
}): Pod | undefined {
  const record = records.get(uid);
  if (record === undefined) return caches.pods.byIndex("uid", uid)[0];
  const pod = caches.pods.get(namespacedKey(record.namespace, record.name));
  return pod?.metadata.uid === uid ? pod : undefined;
}

function wakeOwner(records: PodRecordStore, id: string, wake: PodContext["wake"]): void {
  const owner = records.all().find(({ containers }) => Object.values(containers).some(({ hostId }) => hostId === id));
  if (owner !== undefined) wake(owner);
}

/** Running pods by their records, and sleeping Sandboxes that traffic may wake. */
function endpointsOf(records: PodRecordStore, caches: NodeCaches, sleep: SleepStates): Endpoint[] {
  const running = records.all().flatMap(({ slot, address, namespace, name, uid }) => {
    const pod = caches.pods.get(namespacedKey(namespace, name));
    if (slot === undefined || address === undefined || pod?.metadata.uid !== uid) return [];
    const owner = podOwnerOf(pod, (key) => caches.sandboxes.get(key));
    // Who connects to a sandbox that traffic wakes waits until it serves, from the moment that the one before was asked to go.
    const isHeld = owner.kind === "proven" && wakesOnTraffic(owner.sandbox) && !sleep.serves(pod, isServing(pod));
    return [{ ...podEndpoint(pod, { address, slot }), isHeld }];
  });
  const taken = new Set(running.map(({ address }) => address));
  const sleeping = caches.sandboxes.list().flatMap((sandbox) => {
    const endpoint = wakesOnTraffic(sandbox) ? sleepingEndpoint(sandbox) : undefined;
    return endpoint === undefined || taken.has(endpoint.address) ? [] : [endpoint];
  });
  return [...running, ...sleeping];
}
