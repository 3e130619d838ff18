import type { Pod, Sandbox } from "@agent-sandbox/api";
import { type Client, type Clock, defineController, delay, type WorkQueue } from "@agent-sandbox/kube";
import { openControllerTelemetry } from "../telemetry/controller-telemetry.ts";
import type { Logger } from "../telemetry/logger.ts";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import { runActivityKeeper } from "./activity/activity-keeper.ts";
import { askDaemon } from "./activity/ask-daemon.ts";
import { isDialledFromHere } from "./activity/host-connections.ts";
import { OpenStreams } from "./activity/open-streams.ts";
import { startAdminServer } from "./admin/admin-server.ts";
import type { NodeConfig } from "./config.ts";
import { runDiskKeeper } from "./disk/disk-keeper.ts";
import { freeBytesAt } from "./disk/free-space.ts";
import { DnsForwarder } from "./dns/dns-forwarder.ts";
import { DnsServer } from "./dns/dns-server.ts";
import type { Host } from "./host/host.ts";
import { runImageCollector } from "./images/image-collector.ts";
import { imageArchitecture } from "./images/manifest.ts";
import type { Fetch } from "./images/registry-client.ts";
import { gatewayOf } from "./network/address-pool.ts";
import type { RuleKeeper } from "./network/rule-keeper.ts";
import { isServing } from "./network/sandbox-addresses.ts";
import { WakeLoop } from "./network/wake-loop.ts";
import { allCaches, createCaches, type NodeCaches, tenantOf, zoneRecords } from "./node-caches.ts";
import { assembleNode, type NodeParts } from "./node-parts.ts";
import { NodeReporter } from "./node-status/node-reporter.ts";
import type { PodContext } from "./pods/pod-context.ts";
import { reconcilePod } from "./pods/pod-controller.ts";
import type { ProbeDialers } from "./probes/probe-check.ts";
import { recover, resumeContainers, sweepOrphans } from "./recovery.ts";
import { KubeletAuth } from "./streams/kubelet-auth.ts";
import { KubeletServer } from "./streams/kubelet-server.ts";
import type { SandboxdClient, SandboxdRun } from "./streams/sandboxd-client.ts";
import { cleanUpOnDelete } from "./volumes/volume-cleanup.ts";
import { expandOnGrowth } from "./volumes/volume-expansion.ts";

/** Pods worked on at once: starting one waits mostly for the host. */
const workers = 8;

/** How soon rules that the host refused are tried again: a helper that was killed is back within this. */
const rulesRetryMs = 1_000;

/** What the agent is made of. The optional parts have real defaults; tests replace them. */
export interface NodeAgentDeps {
  readonly client: Client;
  readonly host: Host;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  readonly config: NodeConfig;
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

/** A running agent. */
export interface NodeAgent {
  readonly kubeletPort: number;
  readonly dnsPort: number;
  /** Nothing is waiting to be done except what waits for time. */
  idle(): Promise<void>;
  /** Stops the agent; sandboxes keep running. */
  stop(): Promise<void>;
}

/** Starts the agent: takes over what runs, registers the node, then works until stopped. */
export async function startNodeAgent(deps: NodeAgentDeps): Promise<NodeAgent> {
  const { client, host, clock, logger, config } = deps;
  const stop = new AbortController();
  const { signal } = stop;
  const architecture = imageArchitecture(process.arch);
  await host.ensureNetwork({ cidr: config.podCidr, gateway: gatewayOf(config.podCidr) }, signal);
  const telemetry = openControllerTelemetry(deps.metrics, logger);
  const podController = defineController({
    name: "node-pods",
    clock,
    telemetry,
    workers,
    reconcile: (key, pass) => reconcilePod(parts.controller, key, pass),
  });
  const { queue } = podController;
  const caches = createCaches({ client, clock, logger, nodeName: config.nodeName });
  const parts = assembleNode({ deps, caches, queue, signal, architecture, info: await host.info(signal) });
  const { context } = parts;
  const streams = new OpenStreams(() => clock.nowMs());
  const dns = await bindNames(deps, caches);
  await deps.onBound?.();
  dns.serve();
  const listeners = await bindListeners({ deps, parts, streams, architecture });

  await recover(context);
  const loops = allCaches(caches).map((cache) => cache.run(signal));
  await Promise.all(allCaches(caches).map((cache) => cache.synced(signal)));
  await context.rules.apply();
  await resumeContainers(context, caches);
  await sweepOrphans(context, caches, signal);
  const { kubeletPort } = listeners;
  const reporter = new NodeReporter({ ...context, architecture, kubeletPort });
  await reporter.register();
  watchForWork({ caches, queue, context });
  cleanUpOnDelete(context, caches);
  expandOnGrowth(context, caches);
  context.waiting.fill();
  loops.push(
    reporter.run(),
    wakeSandboxes(deps, caches, context.rules, signal),
    // Where daemons are a test's, their addresses lead nowhere.
    runActivityKeeper({
      client,
      clock,
      logger,
      streams,
      signal,
      pods: caches.pods,
      sandboxes: caches.sandboxes,
      ask: deps.sandboxdAt === undefined ? askDaemon : async () => undefined,
      isDialled: isDialledFromHere,
    }),
    collectUnusedImages(context),
    runDiskKeeper({ context, pods: caches.pods, freeBytes: deps.freeBytes ?? (() => freeBytesAt(config.dataDir)) }),
    podController.run(signal),
  );
  return {
    kubeletPort,
    dnsPort: dns.port,
    idle: async () => {
      await context.puller.idle();
      await queue.drained();
      await context.events.flushed();
    },
    stop: async () => {
      if (signal.aborted) return;
      stop.abort(new Error("the node agent is stopping"));
      for (const runner of context.probes.values()) runner.stop();
      await Promise.allSettled([...loops, context.puller.idle(), context.slots.idle(), context.waiting.close()]);
      await Promise.all([dns.close(), listeners.close()]);
    },
  };
}

/** Images go when the disk fills up, but none that a container of this node runs on or is about to. */
function collectUnusedImages({
  images,
  puller,
  records,
  host,
  clock,
  logger,
  config,
  signal,
}: PodContext): Promise<void> {
  const used = (): ReadonlySet<string> => {
    const running = records.all().flatMap(({ containers }) => Object.values(containers).map(({ imageId }) => imageId));
    return new Set([...running, ...puller.readyReferences()]);
  };
  return runImageCollector({ store: images, host, clock, logger, used, limits: config.imageCollection, signal });
}

/** Binds the port of names, on the gateway of all sandboxes. */
async function bindNames(
  { clock, config }: NodeAgentDeps,
  caches: NodeCaches,
): Promise<{ readonly port: number; serve(): void; close(): Promise<void> }> {
  const dns = new DnsServer({
    address: config.dns.address ?? gatewayOf(config.podCidr),
    port: config.dns.port,
    domain: config.clusterDomain,
    records: zoneRecords(caches),
    forwarder: new DnsForwarder({ resolvers: config.dns.resolvers, clock }),
    clock,
    tenantOf: (address) => tenantOf(caches, address),
  });
  return { port: await dns.bind(), serve: () => dns.serve(), close: () => dns.close() };
}

interface Listening {
  readonly deps: NodeAgentDeps;
  readonly parts: NodeParts;
  readonly streams: OpenStreams;
  readonly architecture: string;
}

interface Listeners {
  readonly kubeletPort: number;
  close(): Promise<void>;
}

/** Binds every other socket of the node. */
async function bindListeners({ deps, parts, streams, architecture }: Listening): Promise<Listeners> {
  const { client, clock, logger, config } = deps;
  const auth = new KubeletAuth({ client, clock, nodeName: config.nodeName });
  const kubelet = new KubeletServer({ config: config.kubelet, auth, backend: parts.backend, streams, clock, logger });
  const kubeletPort = await kubelet.listen();
  const { context } = parts;
  const admin =
    deps.adminSocket === undefined
      ? undefined
      : await startAdminServer({ path: deps.adminSocket, context, architecture });
  return {
    kubeletPort,
    close: async () => {
      await Promise.all([kubelet.close(), admin?.close()]);
    },
  };
}

function wakeSandboxes(
  { client, host, clock, logger }: NodeAgentDeps,
  caches: NodeCaches,
  rules: RuleKeeper,
  signal: AbortSignal,
): Promise<void> {
  const sandboxes = (): readonly Sandbox[] => caches.sandboxes.list();
  const loop = new WakeLoop({
    client,
    host,
    clock,
    logger,
    signal,
    sandboxes,
    applyRules: () => rules.apply(),
    renewRules: () => rules.renew(),
    isAwake: (address) => caches.pods.byIndex("address", address).some(isServing),
  });
  const nudge = (): void => loop.nudge();
  caches.pods.addHandler({ onAdd: nudge, onUpdate: nudge, onReplace: nudge });
  return loop.run();
}

/** Every change becomes a key; a reconciler never learns which change it was. */
function watchForWork({
  caches,
  queue,
  context,
}: {
  caches: NodeCaches;
  queue: WorkQueue<string>;
  context: PodContext;
}): void {
  const add = (pod: Pod): void => queue.add(`${pod.metadata.namespace ?? ""}/${pod.metadata.name}`);
  caches.pods.addHandler({ onAdd: add, onUpdate: (_old, pod) => add(pod), onDelete: add });
  for (const record of context.records.all()) queue.add(`${record.namespace}/${record.name}`);
  // Only the pod that a Sandbox names is woken: any number of others may say that they are its own.
  const addNamed = (sandbox: Sandbox): void => caches.pods.byIndex("uid", sandbox.status?.podUID ?? "").forEach(add);
  caches.sandboxes.addHandler({
    onAdd: addNamed,
    onUpdate: (old, sandbox) => {
      if (old.status?.podUID !== sandbox.status?.podUID) addNamed(sandbox);
    },
  });
  const rules = keepRules(context);
  for (const cache of [caches.policies, caches.namespaces, caches.sandboxes, caches.pods]) {
    cache.addHandler({
      onAdd: (_object, { initial }) => {
        if (!initial) rules();
      },
      onUpdate: rules,
      onDelete: rules,
    });
  }
}

/** Applies the rules whenever called, and again until they are in force: a policy that was accepted must not wait for the next change. */
function keepRules({ rules, clock, logger, signal }: PodContext): () => void {
  let isRetrying = false;
  const retry = async (): Promise<void> => {
    if (isRetrying) return;
    isRetrying = true;
    try {
      while (!signal.aborted) {
        await delay(clock, rulesRetryMs, signal);
        if (await isApplied()) return;
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      isRetrying = false;
    }
  };
  const isApplied = (): Promise<boolean> =>
    rules.apply().then(
      () => true,
      (error: unknown) => {
        if (!signal.aborted)
          logger.error({ err: error }, "network rules could not be applied; the old ones stay until they can be");
        return false;
      },
    );
  return () => void isApplied().then((done) => (done ? undefined : retry()));
}
