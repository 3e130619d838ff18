import { freemem } from "node:os";
import { isDeepStrictEqual } from "node:util";
import {
  formatMicroTime,
  ignore,
  type Lease,
  leases,
  type NodeCondition,
  type NodeStatus,
  nodes,
} from "@agent-sandbox/api";
import { type Client, type Clock, type Controller, type ControllerTelemetry, defineLoop } from "@agent-sandbox/kube";
import type { RecordShelf } from "../../durable/record-shelf.ts";
import type { NodeConfig } from "../config.ts";
import type { Host } from "../host/host.ts";
import type { ImageStore } from "../images/image-store.ts";
import { newNode, nodeStatus } from "./node-object.ts";
import { readProcessIds } from "./process-ids.ts";

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
  readonly telemetry?: ControllerTelemetry;
  readonly config: NodeConfig;
  readonly images: ImageStore;
  readonly shelf: RecordShelf;
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
    await this.#create();
    await this.#writeStatus();
    await this.#renewLease();
  }

  async #create(): Promise<void> {
    const { client, config, architecture, signal } = this.#options;
    await client.create(nodes, newNode({ config }, architecture), { signal }).catch(ignore("AlreadyExists"));
  }

  /** Renews the Lease and the status with every beat. */
  heartbeat(): Controller {
    const { clock, telemetry } = this.#options;
    return defineLoop({
      name: "node-heartbeat",
      clock,
      ...(telemetry !== undefined && { telemetry }),
      everyMs: heartbeatMs,
      run: async () => {
        await this.#renewLease();
        await this.#writeStatus();
      },
    });
  }

  async #writeStatus(): Promise<void> {
    const { client, host, config, clock, images, shelf, architecture, kubeletPort, signal } = this.#options;
    const nowMs = clock.nowMs();
    const key = { name: config.nodeName };
    let found = await client.get(nodes, key, { signal }).catch(ignore("NotFound"));
    // A user deleted the Node: as long as this process lives, it is there.
    if (found === undefined) {
      await this.#create();
      found = await client.get(nodes, key, { signal });
    }
    const stored = images.list().map(({ name, sizeBytes }) => ({ names: [name], sizeBytes }));
    const status = nodeStatus({
      config,
      info: await host.info(signal),
      architecture,
      kubeletPort,
      memoryAvailableBytes: freemem(),
      processIds: await readProcessIds(),
      images: stored,
      badRecords: await shelf.names(),
      old: found.status,
      nowMs,
    });
    if (nowMs - this.#writtenAtMs < statusMs && isTold({ status, written: this.#written, shown: found.status })) return;
    // Conditions of others, such as a network plugin's, stay: these lists are merged by type.
    const patch = { type: "strategic", body: { status } } as const;
    await client.patch(nodes, key, patch, { subresource: "status", fieldManager: "kubelet", signal });
    this.#written = status;
    this.#writtenAtMs = nowMs;
  }

  async #renewLease(): Promise<void> {
    const { client, clock, config, signal } = this.#options;
    const key = { namespace: "kube-node-lease", name: config.nodeName };
    const renewTime = formatMicroTime(clock.nowMs());
    const spec = { holderIdentity: config.nodeName, leaseDurationSeconds: leaseSeconds, renewTime };
    const renewed = await client
      .patch(leases, key, { type: "merge", body: { spec } }, { signal })
      .catch(ignore("NotFound"));
    if (renewed !== undefined) return;
    const lease: Lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: key, spec };
    await client.create(leases, lease, { signal }).catch(ignore("AlreadyExists"));
  }
}

interface Telling {
  readonly status: NodeStatus;
  /** As it was sent last: a server may write quantities in another way. */
  readonly written: NodeStatus | undefined;
  /** As the server has it: others may have changed our conditions meanwhile, as they do for a node that seems dead. */
  readonly shown: NodeStatus | undefined;
}

/** Whether the API server knows all this already, but for the times of heartbeats. */
function isTold({ status, written, shown }: Telling): boolean {
  const { conditions = [], ...rest } = status;
  const { conditions: _conditions, ...writtenRest } = written ?? {};
  const known = new Map(shown?.conditions?.map((condition) => [condition.type, withoutHeartbeat(condition)]));
  return (
    isDeepStrictEqual(rest, writtenRest) &&
    conditions.every((condition) => isDeepStrictEqual(known.get(condition.type), withoutHeartbeat(condition)))
  );
}

function withoutHeartbeat({
  lastHeartbeatTime: _beat,
  ...rest
}: NodeCondition): Omit<NodeCondition, "lastHeartbeatTime"> {
  return rest;
}
