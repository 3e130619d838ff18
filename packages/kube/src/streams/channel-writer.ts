import { Writable } from "node:stream";
import type { WebSocket } from "ws";

/** A writable that puts its channel number before every message and waits while the socket is congested. */
export function channelWriter(socket: WebSocket, number: number): Writable {
  return new Writable({
    write(chunk: Buffer, _encoding, done): void {
      if (socket.readyState !== socket.OPEN) return done(new Error("client closed the connection"));
      socket.send(Buffer.concat([Buffer.from([number]), chunk]), (error) => done(error ?? null));
    },
  });
}
