import type { ServerHttp2Session } from "node:http2";

/** A client that is there answers within a round trip, and within seconds on a machine that swaps. */
export const pingEveryMsDefault = 7_500;

/** Turns that may pass without an answer: after the first, this process itself may have been too busy to read it. */
const silentTurnsMax = 2;

/** Ends a connection when its client has closed it: nothing of HTTP/2 goes over half of one, as an answer of HTTP/1.1 does. */
export function endWhenHalfClosed(session: ServerHttp2Session): void {
  session.socket.once("end", () => session.destroy(new Error("the client has closed the connection")));
}

/**
 * Ends a connection whose client does not answer. Node stops reading from an HTTP/2 connection while it writes, and one that
 * breaks just then is never heard of again: its exchanges would stay open, and watches be written to it, for ever.
 */
export function endWhenSilent(session: ServerHttp2Session, everyMs: number): void {
  let silentTurns = 0;
  const timer = setInterval(() => {
    if (session.destroyed) return;
    if (silentTurns >= silentTurnsMax) {
      // With an error the connection is cut; without one it would be closed politely, and wait for an answer once more.
      session.destroy(new Error("the client answers no ping"));
      return;
    }
    silentTurns += 1;
    session.ping(() => {
      silentTurns = 0;
    });
  }, everyMs);
  timer.unref();
  session.once("close", () => clearInterval(timer));
}
