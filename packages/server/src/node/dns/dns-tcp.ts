import type { Socket } from "node:net";
import { StreamWriter } from "@agent-sandbox/kube";
import { tryTakeMessage, withLength } from "./ask-resolver.ts";

/** How long a connection may be idle, and how long its reader may take nothing. */
const idleMs = 10_000;

/** The longest query that is read; a real one has under 300 bytes. */
const queryBytesMax = 4 * 1024;

/** Queries of one connection that are answered at once; more are not read until one of them is answered and taken. */
const underWayMax = 4;

/** Answers the queries on one connection until it ends. Resolves with it, and never rejects. */
export async function serveDnsConnection(
  socket: Socket,
  answer: (query: Buffer) => Promise<Buffer | undefined>,
  writer = new StreamWriter(socket, { stallMs: idleMs }),
): Promise<void> {
  socket.setTimeout(idleMs, () => socket.destroy());
  const underWay = new Set<Promise<unknown>>();
  let pending: Buffer = Buffer.alloc(0);
  try {
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
      for (let query = tryTakeMessage(pending); query !== undefined; query = tryTakeMessage(pending)) {
        pending = pending.subarray(2 + query.length);
        const serving = serve(query, answer, writer).finally(() => underWay.delete(serving));
        underWay.add(serving);
        if (underWay.size >= underWayMax) await Promise.race(underWay);
        if (writer.isOver) return;
      }
      if (pending.length > queryBytesMax) return;
    }
    await Promise.all(underWay);
  } catch {
    // Reset by its client, or timed out.
  } finally {
    socket.destroy();
  }
}

/** Questions come from hostile code: one that cannot be answered costs its asker the answer, and does not end the server. */
async function serve(
  query: Buffer,
  answer: (query: Buffer) => Promise<Buffer | undefined>,
  writer: StreamWriter,
): Promise<void> {
  const response = await answer(query).catch(() => undefined);
  if (response !== undefined) await writer.send(withLength(response));
}
