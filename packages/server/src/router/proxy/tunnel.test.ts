import { duplexPair } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type EndSession, tunnel } from "./tunnel.ts";

test("tunnel: the last frame of a session that ends is sent no faster than its reader reads", async () => {
  const [client, caller] = duplexPair();
  const [upstream, sandbox] = duplexPair();
  const sessions = new Set<EndSession>();
  const ends = { client, upstream: Object.assign(upstream, { setTimeout: () => undefined }) };
  const options = { isWebsocket: true, idleTimeoutMs: 0, lifetimeMs: 0, endsInMs: undefined, sessions };
  const over = tunnel(ends, options);
  // The head of a frame of a terabyte: the session cannot end before it does.
  sandbox.write(Buffer.from([0x82, 127, 0, 0, 1, 0, 0, 0, 0, 0]));
  await sleep(5);
  for (const end of sessions) end("shutting down");
  const piece = Buffer.alloc(64 * 1024);
  let sent = 0;
  const flooding = (async () => {
    for (; sent < 1_000 && !sandbox.destroyed; sent++)
      if (!sandbox.write(piece)) await new Promise((resolve) => sandbox.once("drain", resolve).once("close", resolve));
  })();
  await sleep(100);
  expect(client.writableLength).toBeLessThan(512 * 1024);
  expect(sent).toBeLessThan(100);
  for (const side of [caller, sandbox, client, upstream]) side.destroy();
  await over;
  await flooding;
});
