import { freemem } from "node:os";
import { isDeepStrictEqual } from "node:util";
import { ignore, type Lease, leases, type NodeStatus, nodes } from "@agent-sandbox/api";
import { type Client, type Clock, delay } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { NodeConfig } from "../config.ts";
import type { Host } from "../host/host.ts";
import type { ImageStore } from "../images/image-store.ts";
import { newNode, nodeStatus } from "./node-object.ts";

/** How often the Lease is renewed, and how long it lasts; the kubelet's figures. */
const heartbeatMs = 10_000;
const leaseSeconds = 40;

/** How often the status is written even if nothing but its heartbeat changed; the kubelet's figure. */
const statusMs = 300_000;

/** The reporter's parts. */
export interface NodeReporterOptions {
  readonly client: Client;
  readonly host: Host;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly config: NodeConfig;
  readonly images: ImageStore;
  readonly architecture: string;
  readonly kubeletPort: number;
  readonly signal: AbortSignal;
}

/** Registers the node and keeps telling the API server that it lives and how it is. */
export class NodeReporter {
  readonly #options: NodeReporterOptions;
  #written: NodeStatus | undefined;
  #writtenAtMs = 0;

  constructor(options: NodeReporterOptions) {
    this.#options = options;
  }

  /** Makes the Node object and writes the first status; throws when the API server does not let it. */
  async register(): Promise<void> {
    const { client, config, architecture, signal } = this.#options;
    await client.create(nodes, newNode({ config }, architecture), { signal }).catch(ignore("AlreadyExists"));
    await this.#writeStatus();
    await this.#renewLease();
  }

  /** Heartbeats until the signal aborts. */
  async run(): Promise<void> {
    const { clock, logger, signal } = this.#options;
    while (!signal.aborted) {
      try {
        await delay(clock, heartbeatMs, signal);
        await this.#renewLease();
        await this.#writeStatus();
      } catch (error) {
        if (signal.aborted) return;
        logger.warn({ err: error }, "heartbeat failed; it is tried again");
      }
    }
  }

  async #writeStatus(): Promise<void> {
    const { client, host, config, clock, images, architecture, kubeletPort, signal } = this.#options;
    const nowMs = clock.nowMs();
    const stored = images.list().map(({ name, sizeBytes }) => ({ names: [name], sizeBytes }));
    const status = nodeStatus({
      config,
      info: await host.info(signal),
      architecture,
      kubeletPort,
      memoryAvailableBytes: freemem(),
      images: stored,
      old: this.#written,
      nowMs,
    });
    if (
      nowMs - this.#writtenAtMs < statusMs &&
      isDeepStrictEqual(withoutHeartbeats(status), withoutHeartbeats(this.#written))
    )
      return;
    await client.patch(
      nodes,
      { name: config.nodeName },
      { type: "merge", body: { status } },
      { subresource: "status", fieldManager: "kubelet", signal },
    );
    this.#written = status;
    this.#writtenAtMs = nowMs;
  }

  async #renewLease(): Promise<void> {
    const { client, clock, config, signal } = this.#options;
    const key = { namespace: "kube-node-lease", name: config.nodeName };
    const renewTime = new Date(clock.nowMs()).toISOString().replace("Z", "000Z");
    const spec = { holderIdentity: config.nodeName, leaseDurationSeconds: leaseSeconds, renewTime };
    const renewed = await client
      .patch(leases, key, { type: "merge", body: { spec } }, { signal })
      .catch(ignore("NotFound"));
    if (renewed !== undefined) return;
    const lease: Lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: key, spec };
    await client.create(leases, lease, { signal }).catch(ignore("AlreadyExists"));
  }
}

/** Free bytes change all the time and are nobody's news. */
function withoutHeartbeats(status: NodeStatus | undefined): unknown {
  return { ...status, conditions: status?.conditions?.map(({ lastHeartbeatTime: _beat, ...rest }) => rest) };
}
