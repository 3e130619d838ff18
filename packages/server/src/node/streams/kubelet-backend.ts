import type { Duplex } from "node:stream";
import type { CommandOutcome } from "./command-outcome.ts";
import type { ContainerRef, KubeletRoute } from "./kubelet-routes.ts";
import type { RemoteCommand } from "./remote-command.ts";

/** A request that cannot be served; becomes an HTTP status and a plain message. */
export class KubeletError extends Error {
  override readonly name = "KubeletError";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** What the HTTPS endpoint needs of the node. Every method throws a KubeletError for what is not there. */
export interface KubeletBackend {
  /** Throws unless the container exists and runs; called before a connection is upgraded. */
  assertRunning(ref: ContainerRef): void;
  exec(
    ref: ContainerRef,
    options: { readonly command: readonly string[]; readonly tty: boolean },
    remote: RemoteCommand,
  ): Promise<CommandOutcome>;
  attach(ref: ContainerRef, remote: RemoteCommand): Promise<CommandOutcome>;
  dial(pod: { readonly namespace: string; readonly pod: string }, port: number, signal: AbortSignal): Promise<Duplex>;
  logs(route: Extract<KubeletRoute, { kind: "logs" }>, signal: AbortSignal): AsyncIterable<Buffer>;
  summary(): Promise<unknown>;
  resourceMetrics(): Promise<string>;
  podMetrics(): Promise<string>;
  metrics(): Promise<string>;
  pods(): unknown;
}
