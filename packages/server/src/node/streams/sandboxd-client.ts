import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { sandboxdPort } from "../pods/sandboxd-launch.ts";
import { ProcessService } from "../proto/process.gen.ts";

/** The processes of one sandbox, over the daemon inside it. */
export type SandboxdClient = Client<typeof ProcessService>;

/** A daemon to reach: where it is, and the run of the container it is in. */
export interface SandboxdRun {
  readonly address: string;
  readonly hostId: string;
}

/** Kept connections; the one used longest ago is closed first. A connection costs a socket on each side. */
const connectionsMax = 256;

/** Longest message that is read: more than the daemon ever sends in one. A longer one is not our daemon's. */
const messageBytesMax = 4 * 1024 * 1024;

/**
 * Hands out clients by the run of a container; each keeps its connection, so that no exec pays for a new one. Addresses are used again by
 * later sandboxes, and a connection to one that is gone would swallow what is sent to its successor.
 */
export class SandboxdClients {
  readonly #clients = new Map<string, SandboxdClient>();

  at({ address, hostId }: SandboxdRun): SandboxdClient {
    const known = this.#clients.get(hostId);
    this.#clients.delete(hostId);
    const client =
      known ??
      createClient(
        ProcessService,
        createGrpcTransport({
          baseUrl: `http://${address}:${sandboxdPort}`,
          idleConnectionTimeoutMs: 60_000,
          readMaxBytes: messageBytesMax,
        }),
      );
    this.#clients.set(hostId, client);
    if (this.#clients.size > connectionsMax) {
      const [oldest] = this.#clients.keys();
      if (oldest !== undefined) this.#clients.delete(oldest);
    }
    return client;
  }
}
