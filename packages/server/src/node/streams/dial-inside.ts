import { request } from "node:http";
import type { Duplex } from "node:stream";
import { sandboxdPort } from "../pods/sandboxd-launch.ts";

/**
 * Dials a port of a sandbox's own loopback address through the daemon inside, for what listens nowhere else.
 * Undefined when nothing listens there either, or no daemon answers.
 */
export function dialInside(address: string, port: number, signal: AbortSignal): Promise<Duplex | undefined> {
  return new Promise((resolve, reject) => {
    const outgoing = request({
      host: address,
      port: sandboxdPort,
      path: `/v1/dial/${port}`,
      headers: { connection: "Upgrade", upgrade: "tcp" },
      agent: false,
      signal,
    });
    outgoing.once("upgrade", (_response, socket, head) => {
      if (head.length > 0) socket.unshift(head);
      socket.setNoDelay(true);
      resolve(socket);
    });
    outgoing.once("response", (response) => {
      response.resume();
      resolve(undefined);
    });
    outgoing.once("error", (error) => {
      if (signal.aborted) reject(error);
      else resolve(undefined);
    });
    outgoing.end();
  });
}
