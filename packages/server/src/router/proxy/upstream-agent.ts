import http from "node:http";
import type { Duplex } from "node:stream";
import type { Dialer } from "./dial.ts";

/** Idle connections kept per sandbox port and in all; an idle one costs a descriptor on both sides. */
const idlePerSandboxMax = 64;
const idleMax = 1024;

/** Keeps connections to sandboxes open between requests; new ones come from the dialer, fallback included. */
export class UpstreamAgent extends http.Agent {
  readonly #dialer: Dialer;

  constructor(dialer: Dialer) {
    super({
      keepAlive: true,
      maxFreeSockets: idlePerSandboxMax,
      maxTotalSockets: Number.POSITIVE_INFINITY,
      timeout: 0,
      scheduling: "lifo",
    });
    this.maxTotalSockets = Number.POSITIVE_INFINITY;
    this.maxFreeSockets = Math.min(idlePerSandboxMax, idleMax);
    this.#dialer = dialer;
  }

  override createConnection(
    options: http.ClientRequestArgs,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    this.#dialer.dial(String(options.host), Number(options.port)).then(
      (socket) => callback?.(null, socket),
      (error: Error) => callback?.(error, undefined as unknown as Duplex),
    );
    return undefined;
  }
}
