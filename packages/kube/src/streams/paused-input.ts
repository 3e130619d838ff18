import type { Writable } from "node:stream";
import type { WebSocket } from "ws";

/** How often a client that is not being read from is written to. */
export const pausedPingMs = 1_000;

/**
 * Reads nothing more from a client until what it sent has been taken. A connection that is not read from does not show that its
 * other end has gone; one that is written to does, so the client is pinged meanwhile.
 */
export function pauseUntilDrained(socket: WebSocket, taker: Writable, pingMs = pausedPingMs): void {
  socket.pause();
  let isUnderWay = false;
  const timer = setInterval(() => {
    if (isUnderWay || socket.readyState !== socket.OPEN) return;
    isUnderWay = true;
    socket.ping(undefined, undefined, () => {
      isUnderWay = false;
    });
  }, pingMs);
  timer.unref();
  const done = (): void => {
    clearInterval(timer);
    taker.off("drain", done).off("close", done);
    socket.off("close", done);
    socket.resume();
  };
  taker.on("drain", done).on("close", done);
  socket.on("close", done);
}
