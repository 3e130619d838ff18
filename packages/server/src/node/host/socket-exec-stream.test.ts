import { duplexPair } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { encodeFrame, frameKind } from "./exec-frame.ts";
import { SocketExecStream } from "./socket-exec-stream.ts";

const piece = Buffer.alloc(32 * 1024);

test("exec stream: standard output that nobody reads stays bounded while standard error is read", async () => {
  const [ours, theirs] = duplexPair();
  const stream = new SocketExecStream(ours, Buffer.alloc(0));
  // A reader that is a little slower than the writer, so that its stream fills and drains again and again.
  const reading = (async () => {
    for await (const _chunk of stream.stderr) await sleep(0);
  })();
  let sent = 0;
  const flooding = (async () => {
    for (; sent < 1_000 && !theirs.destroyed; sent++) {
      const both = [encodeFrame(frameKind.stdout, piece), encodeFrame(frameKind.stderr, Buffer.alloc(256 * 1024))];
      if (!theirs.write(Buffer.concat(both)))
        await new Promise((resolve) => theirs.once("drain", resolve).once("close", resolve));
    }
  })();
  await sleep(100);
  expect(sent).toBeLessThan(100);
  expect(stream.stdout.writableLength + stream.stdout.readableLength).toBeLessThan(512 * 1024);
  await stream.close();
  theirs.destroy();
  await flooding;
  await reading;
});

test("exec stream: what was held back arrives whole once it is read", async () => {
  const [ours, theirs] = duplexPair();
  const stream = new SocketExecStream(ours, Buffer.alloc(0));
  for (let index = 0; index < 50; index++) theirs.write(encodeFrame(frameKind.stdout, piece));
  theirs.write(encodeFrame(frameKind.exit, Buffer.from('{"exitCode":3}')));
  await sleep(20);
  let size = 0;
  for await (const chunk of stream.stdout) size += (chunk as Buffer).length;
  expect([size, await stream.exit]).toEqual([50 * piece.length, 3]);
});

test.each(["", "{}", "[", '{"exitCode":"x"}', "null"])(
  "exec stream: an exit that reads %j ends it and nothing else",
  async (text) => {
    const [ours, theirs] = duplexPair();
    const stream = new SocketExecStream(ours, Buffer.alloc(0));
    theirs.write(encodeFrame(frameKind.exit, Buffer.from(text)));
    await expect(stream.exit).rejects.toThrow("not readable");
  },
);
