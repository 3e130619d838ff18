import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { Pod } from "@agent-sandbox/api";
import { type Client, type Clock, runController, WorkQueue } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import { startAdminServer } from "./admin/admin-server.ts";
import type { NodeConfig } from "./config.ts";
import { DnsForwarder } from "./dns/dns-forwarder.ts";
import { DnsServer } from "./dns/dns-server.ts";
import { EventRecorder } from "./event-recorder.ts";
import type { Host } from "./host/host.ts";
import { recordPull } from "./image-events.ts";
import { ImagePuller } from "./images/image-puller.ts";
import { ImageStore } from "./images/image-store.ts";
import { imageArchitecture } from "./images/manifest.ts";
import type { Fetch } from "./images/registry-client.ts";
import { AddressPool, gatewayOf } from "./network/address-pool.ts";
import { compileRules, type Endpoint, podEndpoint } from "./network/compile-rules.ts";
import { RuleKeeper } from "./network/rule-keeper.ts";
import { addressOf, owningSandbox, sleepingEndpoint, wakesOnTraffic } from "./network/sandbox-addresses.ts";
import { SlotPool } from "./network/slot-pool.ts";
import { runWakeLoop } from "./network/wake-loop.ts";
import { allCaches, createCaches, type NodeCaches, zoneRecords } from "./node-caches.ts";
import { NodeReporter } from "./node-status/node-reporter.ts";
import { ExitWatcher } from "./pods/exit-watcher.ts";
import type { PodContext } from "./pods/pod-context.ts";
import { type PodControllerOptions, reconcilePod } from "./pods/pod-controller.ts";
import { PodRecordStore } from "./pods/pod-record-store.ts";
import { isConditionTrue } from "./pods/pod-status.ts";
import { networkDialers } from "./probes/dialers.ts";
import type { ProbeDialers } from "./probes/probe-check.ts";
import { recover, resumeContainers, sweepOrphans } from "./recovery.ts";
import { CommandRunner } from "./streams/command-runner.ts";
import { KubeletAuth } from "./streams/kubelet-auth.ts";
import { KubeletServer } from "./streams/kubelet-server.ts";
import { NodeBackend } from "./streams/node-backend.ts";
import { type SandboxdClient, SandboxdClients } from "./streams/sandboxd-client.ts";
import { TokenCache } from "./volumes/token-cache.ts";

/** Pods worked on at once: starting one waits mostly for the host. */
const workers = 8;

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
  /** Undefined from it: no daemon can be dialled there. */
  readonly sandboxdAt?: (address: string) => SandboxdClient | undefined;
  /** Unix socket of the local admin API; absent: none. */
  readonly adminSocket?: string;
  /** Called when every socket is bound and before anything a guest sends is read: main gives up root here. */
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
  const queue = new WorkQueue<string>({ clock });
  const caches = createCaches({ client, clock, logger, nodeName: config.nodeName });
  const info = await host.info(signal);
  const parts = assemble({ deps, caches, queue, signal, architecture, info });
  const { context } = parts;
  const dns = new DnsServer({
    address: config.dns.address ?? gatewayOf(config.podCidr),
    port: config.dns.port,
    domain: config.clusterDomain,
    records: zoneRecords(caches),
    forwarder: new DnsForwarder({ resolvers: config.dns.resolvers, clock }),
  });
  const auth = new KubeletAuth({ client, clock, nodeName: config.nodeName });
  const kubelet = new KubeletServer({ config: config.kubelet, auth, backend: parts.backend, clock, logger });
  const [dnsPort, kubeletPort] = await Promise.all([dns.listen(), kubelet.listen()]);
  const admin =
    deps.adminSocket === undefined
      ? undefined
      : await startAdminServer({ path: deps.adminSocket, context, architecture, fetch: deps.fetch ?? fetch });
  await deps.onBound?.();

  await recover(context);
  const loops = allCaches(caches).map((cache) => cache.run(signal));
  await Promise.all(allCaches(caches).map((cache) => cache.synced(signal)));
  await context.rules.apply();
  await resumeContainers(context, caches);
  await sweepOrphans(context, caches, signal);
  const reporter = new NodeReporter({
    client,
    host,
    clock,
    logger,
    config,
    images: context.images,
    architecture,
    kubeletPort,
    signal,
  });
  await reporter.register();
  watchForWork({ caches, queue, context });
  loops.push(
    reporter.run(),
    runWakeLoop({
      client,
      host,
      clock,
      logger,
      signal,
      sandboxes: () => caches.sandboxes.list(),
      isAwake: (address) => isAwake(caches, address),
    }),
    runController({
      name: "node-pods",
      queue,
      workers,
      clock,
      signal,
      reconcile: (key, pass) => reconcilePod(parts.controller, key, pass),
      onPass: (report) => {
        if (report.error !== undefined)
          logger.warn({ err: report.error, key: report.key, passId: report.passId }, "pass over a pod failed");
      },
    }),
  );
  return {
    kubeletPort,
    dnsPort,
    idle: async () => {
      await context.puller.idle();
      await queue.drained();
      await context.events.flushed();
    },
    stop: async () => {
      if (signal.aborted) return;
      stop.abort(new Error("the node agent is stopping"));
      for (const runner of context.probes.values()) runner.stop();
      await Promise.allSettled([...loops, context.puller.idle(), context.slots.idle()]);
      await Promise.all([dns.close(), kubelet.close(), admin?.close()]);
    },
  };
}

interface Assembly {
  readonly deps: NodeAgentDeps;
  readonly caches: NodeCaches;
  readonly queue: WorkQueue<string>;
  readonly signal: AbortSignal;
  readonly architecture: string;
  readonly info: Awaited<ReturnType<Host["info"]>>;
}

function assemble({ deps, caches, queue, signal, architecture, info }: Assembly): {
  context: PodContext;
  backend: NodeBackend;
  controller: PodControllerOptions;
} {
  const { client, host, clock, logger, config } = deps;
  const records = new PodRecordStore(join(config.dataDir, "sandboxes"));
  const images = new ImageStore({ dataDir: config.dataDir, host, clock });
  const events = new EventRecorder({
    client,
    clock,
    logger,
    nodeName: config.nodeName,
    newId: () => randomBytes(8).toString("hex"),
    signal,
  });
  const wake = ({ namespace, name }: { namespace: string; name: string }): void => queue.add(`${namespace}/${name}`);
  const podByUid = (uid: string): Pod | undefined => {
    const record = records.get(uid);
    const found =
      record === undefined
        ? caches.pods.list().find(({ metadata }) => metadata.uid === uid)
        : caches.pods.get(`${record.namespace}/${record.name}`);
    return found?.metadata.uid === uid ? found : undefined;
  };
  const exits = new ExitWatcher({
    host,
    clock,
    signal,
    onExit: (id) => {
      const owner = records
        .all()
        .find((record) => Object.values(record.containers).some(({ hostId }) => hostId === id));
      if (owner !== undefined) wake(owner);
    },
  });
  const puller = new ImagePuller({
    store: images,
    clock,
    architecture,
    registries: config.registries,
    fetch: deps.fetch ?? fetch,
    signal,
    onChange: (key, event) => {
      const [uid = "", container = ""] = key.split("/");
      const pod = podByUid(uid);
      if (pod === undefined) return;
      recordPull(events, pod, container, event);
      wake({ namespace: pod.metadata.namespace ?? "", name: pod.metadata.name });
    },
  });
  const runner = new CommandRunner(host);
  const clients = new SandboxdClients();
  const context: PodContext = {
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
    exits,
    slots: new SlotPool({
      host,
      onError: (error) => logger.warn({ err: error }, "network slot could not be made ahead"),
    }),
    addresses: new AddressPool({
      cidr: config.podCidr,
      isTaken: (address) => caches.sandboxes.byIndex("address", address).length > 0,
    }),
    rules: new RuleKeeper({
      host,
      compile: () =>
        compileRules({
          endpoints: endpointsOf(records, caches),
          policies: caches.policies.list(),
          namespaces: caches.namespaces.list(),
        }),
    }),
    images,
    puller,
    tokens: new TokenCache({ client, clock }),
    dialers: deps.dialers ?? networkDialers,
    probes: new Map(),
    runCommand: (hostId, command, pass) => {
      const run = records
        .all()
        .flatMap((record) => Object.values(record.containers))
        .find((candidate) => candidate.hostId === hostId);
      if (run === undefined) return Promise.reject(new Error("the container is gone"));
      return runner.capture({ hostId, process: run.process }, command, pass);
    },
    sandboxAddress: (pod) => addressOf(owningSandbox(pod, (key) => caches.sandboxes.get(key))),
    wake,
    signal,
  };
  const sandboxdAt = deps.sandboxdAt ?? ((address: string) => clients.at(address));
  const backend = new NodeBackend({ context, pods: caches.pods, runner, metrics: deps.metrics, sandboxdAt });
  const controller: PodControllerOptions = {
    context,
    pods: caches.pods,
    servicesOf: (namespace) => caches.services.byIndex("namespace", namespace),
    limits: {
      allowRunc: config.allowRunc,
      hostPathAllowList: config.hostPathAllowList,
      runtimes: info.runtimes,
      architecture,
    },
  };
  return { context, backend, controller };
}

/** Running pods by their records, and sleeping Sandboxes that traffic may wake. */
function endpointsOf(records: PodRecordStore, caches: NodeCaches): Endpoint[] {
  const running = records.all().flatMap(({ slot, address, namespace, name, uid }) => {
    const pod = caches.pods.get(`${namespace}/${name}`);
    if (slot === undefined || address === undefined || pod?.metadata.uid !== uid) return [];
    return [podEndpoint(pod, { address, slot })];
  });
  const taken = new Set(running.map(({ address }) => address));
  const sleeping = caches.sandboxes.list().flatMap((sandbox) => {
    const endpoint = wakesOnTraffic(sandbox) ? sleepingEndpoint(sandbox) : undefined;
    return endpoint === undefined || taken.has(endpoint.address) ? [] : [endpoint];
  });
  return [...running, ...sleeping];
}

function isAwake(caches: NodeCaches, address: string): boolean {
  return caches.pods.byIndex("address", address).some((pod) => isConditionTrue(pod.status?.conditions, "Ready"));
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
  const rules = (): void => {
    void context.rules
      .apply()
      .catch((error: unknown) =>
        context.logger.error({ err: error }, "network rules could not be applied; the old ones stay"),
      );
  };
  for (const cache of [caches.policies, caches.namespaces, caches.sandboxes, caches.pods]) {
    cache.addHandler({
      onAdd: (_object, { initial }) => void (initial ? undefined : rules()),
      onUpdate: rules,
      onDelete: rules,
    });
  }
}
