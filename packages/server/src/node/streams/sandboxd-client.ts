import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { sandboxdPort } from "../pods/sandboxd-launch.ts";
import { ProcessService } from "../proto/process.gen.ts";

/** The processes of one sandbox, over the daemon inside it. */
export type SandboxdClient = Client<typeof ProcessService>;

/** Kept connections; the one used longest ago is closed first. A connection costs a socket on each side. */
const connectionsMax = 256;

/** Hands out clients by address; each keeps its connection, so that no exec pays for a new one. */
export class SandboxdClients {
  readonly #clients = new Map<string, SandboxdClient>();

  at(address: string): SandboxdClient {
    const known = this.#clients.get(address);
    this.#clients.delete(address);
    const client =
      known ??
      createClient(
        ProcessService,
        createGrpcTransport({ baseUrl: `http://${address}:${sandboxdPort}`, idleConnectionTimeoutMs: 60_000 }),
      );
    this.#clients.set(address, client);
    if (this.#clients.size > connectionsMax) {
      const [oldest] = this.#clients.keys();
      if (oldest !== undefined) this.#clients.delete(oldest);
    }
    return client;
  }

  /** A sandbox is gone; the next one with its address must not get its connection. */
  forget(address: string): void {
    this.#clients.delete(address);
  }
}
