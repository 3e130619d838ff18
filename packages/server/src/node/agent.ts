import { isDeepStrictEqual } from "node:util";
import type { Pod, Sandbox } from "@agent-sandbox/api";
import { isCalledOff, keyOf, namespacedKey } from "@agent-sandbox/api";
import { defineController, type WorkQueue } from "@agent-sandbox/kube";
import { openControllerTelemetry } from "../telemetry/controller-telemetry.ts";
import { OpenStreams } from "./activity/open-streams.ts";
import { startAdminServer } from "./admin/admin-server.ts";
import { DnsForwarder } from "./dns/dns-forwarder.ts";
import { DnsServer } from "./dns/dns-server.ts";
import { imageArchitecture } from "./images/manifest.ts";
import { gatewayOf } from "./network/address-pool.ts";
import type { NodeAgentDeps } from "./node-agent-deps.ts";
import { allCaches, createCaches, type NodeCaches, tenantOf, zoneRecords } from "./node-caches.ts";
import { runNodeLoops } from "./node-loops.ts";
import { assembleNode, type NodeParts } from "./node-parts.ts";
import { NodeReporter } from "./node-status/node-reporter.ts";
import type { PodContext } from "./pods/pod-context.ts";
import { reconcilePod } from "./pods/pod-controller.ts";
import { recover, resumeContainers, sweepOrphans } from "./recovery.ts";
import { KubeletAuth } from "./streams/kubelet-auth.ts";
import { KubeletServer } from "./streams/kubelet-server.ts";

/** Pods worked on at once: starting one waits mostly for the host. */
const workers = 8;

/** A pod that is to sleep or to wake goes before others. */
const wakePriority = 1;

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
  const reporter = new NodeReporter({ ...context, telemetry, architecture, kubeletPort });
  await reporter.register();
  watchForWork({ caches, queue, context });
  context.waiting.fill();
  loops.push(
    reporter.heartbeat().run(signal),
    podController.run(signal),
    ...runNodeLoops({ deps, telemetry, context, caches, streams }),
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
  const add = (pod: Pod): void => queue.add(keyOf(pod));
  caches.pods.addHandler({ onAdd: add, onUpdate: (_old, pod) => add(pod), onDelete: add });
  for (const record of context.records.all()) queue.add(namespacedKey(record.namespace, record.name));
  // Only the pod that a Sandbox names is woken: any number of others may say that they are its own.
  const named = ({ status }: Sandbox): readonly Pod[] => caches.pods.byIndex("uid", status?.podUID ?? "");
  caches.sandboxes.addHandler({
    onAdd: (sandbox) => named(sandbox).forEach(add),
    onUpdate: (before, sandbox) => {
      const { status: old } = before;
      const { status } = sandbox;
      if (old?.podUID !== status?.podUID) named(sandbox).forEach(add);
      // Callers may wait for a wake.
      if (!isDeepStrictEqual(old?.sleep, status?.sleep) || isCalledOff(before) !== isCalledOff(sandbox))
        for (const pod of named(sandbox)) queue.add(keyOf(pod), { priority: wakePriority });
    },
  });
}
