import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ignore, type Namespace, namespaces, type Pod, pods } from "@agent-sandbox/api";
import { type Client, createClient, systemClock, type Transport } from "@agent-sandbox/kube";
import { isWholeBody } from "../../packages/server/src/apiserver/request/api-request.ts";
import { createSecurity } from "../../packages/server/src/apiserver/security.ts";
import { admin, TestServer } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { type NodeAgent, startNodeAgent } from "../../packages/server/src/node/agent.ts";
import type { NodeConfig } from "../../packages/server/src/node/config.ts";
import { FakeHost } from "../../packages/server/src/node/host/fake-host.ts";
import { type FakeProgram, fakePrograms } from "../../packages/server/src/node/host/fake-process.ts";
import type { Host } from "../../packages/server/src/node/host/host.ts";
import { collectionDefaults } from "../../packages/server/src/node/images/plan-collection.ts";
import { planLimits } from "../../packages/server/src/node/limits.ts";
import { sandboxdPort } from "../../packages/server/src/node/pods/sandboxd-launch.ts";
import { networkDialers } from "../../packages/server/src/node/probes/dialers.ts";
import type { ProbeDialers } from "../../packages/server/src/node/probes/probe-check.ts";
import { createLogger, silentLogger } from "../../packages/server/src/telemetry/logger.ts";
import { createMetricsRegistry } from "../../packages/server/src/telemetry/metrics.ts";
import { makeCertificate } from "./certificate.ts";

/** The daemon as a fake host plays it: it runs what stands behind `--`. */
const sandboxd: FakeProgram = (argv, process) => {
  if (argv[1] === "pause") return;
  const command = argv.slice(argv.indexOf("--") + 1);
  const program = fakePrograms[command[0]?.split("/").at(-1) ?? ""];
  if (program === undefined) process.exit(127);
  else program(command, process);
};

const accept: ProbeDialers["tcp"] = () => Promise.resolve({ isOk: true, message: "" });

/** The daemons of the fake host answer; everything else is asked over the network. */
const answer: ProbeDialers["http"] = (check, signal) =>
  check.port === sandboxdPort ? accept(check.host, check.port, signal) : networkDialers.http(check, signal);

/** An API server in memory, a host, and an agent between them. */
export class NodeWorld implements AsyncDisposable {
  readonly server: TestServer;
  readonly client: Client;
  readonly host: Host;
  readonly fake: FakeHost;
  readonly dataDir: string;
  readonly config: NodeConfig;
  agent: NodeAgent | undefined;

  private constructor(parts: {
    server: TestServer;
    client: Client;
    host: Host;
    fake: FakeHost;
    dataDir: string;
    config: NodeConfig;
  }) {
    this.server = parts.server;
    this.client = parts.client;
    this.host = parts.host;
    this.fake = parts.fake;
    this.dataDir = parts.dataDir;
    this.config = parts.config;
  }

  static async start(overrides: Partial<NodeConfig> = {}, real?: { host: Host; dataDir: string }): Promise<NodeWorld> {
    const { virtualResources } = createSecurity({
      clock: systemClock,
      random: Math.random,
      serviceAccountKey: await tokenKey(),
    });
    const server = new TestServer({ clock: systemClock, virtualResources });
    await server.installOwnCrds();
    const client = createClient(transportOf(server));
    const dataDir = real?.dataDir ?? (await mkdtemp(join(tmpdir(), "node-world-")));
    const fake = new FakeHost({ programs: { sandboxd }, now: () => new Date().toISOString() });
    const config = { ...defaultConfig(dataDir, await makeCertificate("/CN=node")), ...overrides };
    const world = new NodeWorld({ server, client, host: real?.host ?? fake, fake, dataDir, config });
    for (const name of ["default", "kube-node-lease"]) {
      const namespace: Namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name } };
      await client.create(namespaces, namespace).catch(() => undefined);
    }
    await world.startAgent();
    return world;
  }

  async startAgent(
    other: {
      readonly client?: Client;
      readonly host?: Host;
      readonly dataDir?: string;
      readonly dialers?: Partial<ProbeDialers>;
      readonly sandboxesAhead?: number;
      readonly freeBytes?: () => Promise<number>;
    } = {},
  ): Promise<void> {
    const dataDir = other.dataDir ?? this.dataDir;
    this.agent = await startNodeAgent({
      client: other.client ?? this.client,
      host: other.host ?? this.host,
      clock: systemClock,
      logger:
        process.env["NODE_WORLD_LOG"] === undefined
          ? silentLogger()
          : createLogger({ component: "node", level: "debug" }),
      metrics: createMetricsRegistry(),
      config: { ...this.config, dataDir, sandboxesAhead: other.sandboxesAhead ?? this.config.sandboxesAhead },
      sandboxdAt: () => undefined,
      ...(other.freeBytes !== undefined && { freeBytes: other.freeBytes }),
      // The fake host has no network, and the real one has its own: no test here may dial the addresses of pods.
      dialers: { ...networkDialers, tcp: accept, http: answer, ...other.dialers },
      adminSocket: join(dataDir, "node.sock"),
    });
  }

  /** Makes a pod that is bound to the node. */
  async createPod(
    name: string,
    spec: Partial<NonNullable<Pod["spec"]>> & Pick<NonNullable<Pod["spec"]>, "containers">,
    annotations: Readonly<Record<string, string>> = {},
  ): Promise<Pod> {
    const pod: Pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, namespace: "default", annotations },
      spec: { nodeName: this.config.nodeName, ...spec },
    };
    return this.client.create(pods, pod);
  }

  getPod(name: string): Promise<Pod> {
    return this.client.get(pods, { namespace: "default", name });
  }

  /** Resolves with the first state of a pod that satisfies the condition, by watching; the test's own limit ends the wait. */
  async podWhere(name: string, condition: (pod: Pod) => boolean): Promise<Pod> {
    const stop = new AbortController();
    try {
      const events = this.client.watch(pods, {
        namespace: "default",
        fieldSelector: `metadata.name=${name}`,
        signal: stop.signal,
      });
      for await (const event of events) {
        if (event.type === "ADDED" || event.type === "MODIFIED") if (condition(event.object)) return event.object;
      }
    } finally {
      stop.abort();
    }
    throw new Error(`watch ended before pod ${name} got there`);
  }

  /** Resolves when a pod is gone from the API and the node has forgotten it. */
  async podGone(name: string): Promise<void> {
    const present = await this.getPod(name).catch(ignore("NotFound"));
    const stop = new AbortController();
    const resourceVersion = present?.metadata.resourceVersion;
    if (resourceVersion !== undefined) {
      const select = {
        namespace: "default",
        fieldSelector: `metadata.name=${name}`,
        resourceVersion,
        signal: stop.signal,
      };
      for await (const event of this.client.watch(pods, select)) if (event.type === "DELETED") break;
    }
    stop.abort();
    await this.agent?.idle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.agent?.stop();
    await this.server[Symbol.asyncDispose]();
    await rm(this.dataDir, { recursive: true, force: true });
  }
}

async function tokenKey(): Promise<{ privateKeyPem: string; keyId: string }> {
  return { privateKeyPem: (await makeCertificate("/CN=tokens")).key, keyId: "test" };
}

/** Whether a pod's Ready condition is true. */
export function isReady(pod: Pod): boolean {
  return pod.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;
}

/** The program's name in the data directory. */
export const sandboxdName = "sandboxd-0123456789ab";

/** No test's machine: what follows from it is the same everywhere. */
const machine = { memoryBytes: 8 * 2 ** 30, diskBytes: 100 * 2 ** 30, pidsMax: 32_768 };

function defaultConfig(dataDir: string, { certificate, key }: { certificate: string; key: string }): NodeConfig {
  return {
    nodeName: "node-a",
    dataDir,
    hostDir: join(dataDir, "../../host"),
    settingsDir: dataDir,
    instance: "fa4e00",
    sandboxdPath: sandboxdName,
    nodeAddress: "127.0.0.1",
    podCidr: "10.200.0.0/16",
    clusterDomain: "cluster.local",
    dns: { port: 0, address: "127.0.0.1", resolvers: [], searches: [] },
    kubelet: { host: "127.0.0.1", port: 0, certificate, key },
    allowRunc: false,
    hostPathAllowList: [],
    podsMax: 110,
    sandboxesAhead: 0,
    imageCollection: collectionDefaults,
    limits: planLimits({ podDiskBytes: 2 ** 30, reservedDiskBytes: 0 }, machine).limits,
    version: "0.1.0",
    labels: {},
  };
}

/** The API as the node reaches it. */
export function transportOf({ api }: TestServer): Transport {
  return {
    request: async (request) => {
      const { status, headers, body } = await api.handle({ ...request, user: admin });
      return { status, headers, body: isWholeBody(body) ? chunksOf(body) : body };
    },
    upgrade: () => Promise.reject(new Error("the test API server upgrades nothing")),
    close: () => Promise.resolve(),
  };
}

async function* chunksOf(parts: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* parts;
}
