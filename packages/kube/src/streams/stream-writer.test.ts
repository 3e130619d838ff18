import { PassThrough, Readable, Writable } from "node:stream";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { holdBack, StreamWriter } from "./stream-writer.ts";

/** A stream whose reader takes a piece only when the test asks for one. */
function stoppedStream(): { stream: Writable; take: () => void } {
  const taken: (() => void)[] = [];
  const stream = new Writable({ highWaterMark: 1000, write: (_chunk, _encoding, done) => void taken.push(done) });
  return { stream, take: () => taken.shift()?.() };
}

const piece = Buffer.alloc(400);

test("StreamWriter: a reader that never reads holds its mark and one piece, whatever its source has", async () => {
  const { stream } = stoppedStream();
  const writer = new StreamWriter(stream);
  let made = 0;
  const sending = (async () => {
    for (; made < 100_000; made++) if (!(await writer.send(piece))) return;
  })();
  await sleep(20);
  expect(made).toBeLessThan(4);
  expect(writer.bufferedBytes).toBeLessThanOrEqual(1400);
  stream.destroy();
  await sending;
});

test("StreamWriter: a reader that comes back gets everything, in order", async () => {
  const through = new PassThrough({ highWaterMark: 1000 });
  const writer = new StreamWriter(through);
  const sent = (async () => {
    for (let index = 0; index < 50; index++) await writer.send(Buffer.from(`${index};`.padStart(100)));
    through.end();
  })();
  await sleep(5);
  let text = "";
  for await (const chunk of through) text += String(chunk);
  await sent;
  expect(text.split(";").map((part) => part.trim())).toEqual([...Array.from({ length: 50 }, (_each, n) => `${n}`), ""]);
});

test("StreamWriter: a reader that takes nothing for a while is given up", async () => {
  const { stream } = stoppedStream();
  const writer = new StreamWriter(stream, { stallMs: 30 });
  while (writer.write(piece));
  await writer.ready();
  expect([stream.destroyed, writer.isOver, await writer.send(piece)]).toEqual([true, true, false]);
});

test("StreamWriter: a reader that is slow is not one that has stopped", async () => {
  const { stream, take } = stoppedStream();
  const writer = new StreamWriter(stream, { stallMs: 60 });
  while (writer.write(piece));
  for (let times = 0; times < 3; times++) {
    await sleep(40);
    take();
    writer.write(piece);
    writer.write(Buffer.alloc(0));
  }
  expect(stream.destroyed).toBe(false);
  stream.destroy();
});

test("StreamWriter: many waits leave no listener behind", async () => {
  const through = new PassThrough({ highWaterMark: 10 });
  const writer = new StreamWriter(through);
  through.resume();
  for (let times = 0; times < 200; times++) await writer.send(piece);
  expect([through.listenerCount("drain"), through.listenerCount("close")]).toEqual([0, 0]);
});

test("StreamWriter: a stream that fails ends its senders and not the process", async () => {
  const stream = new Writable({ write: (_chunk, _encoding, done) => done(new Error("reset")) });
  const writer = new StreamWriter(stream);
  await writer.send(piece);
  await turn();
  expect(await writer.send(piece)).toBe(false);
});

test("holdBack: a source stays stopped until all whom it feeds are ready", async () => {
  const [first, second] = [stoppedStream(), stoppedStream()];
  const writers = [new StreamWriter(first.stream), new StreamWriter(second.stream)];
  for (const writer of writers) while (writer.write(piece));
  const source = new Readable({ read: () => undefined });
  source.resume();
  holdBack(source, ...writers);
  expect(source.isPaused()).toBe(true);
  for (let times = 0; times < 3; times++) first.take();
  await sleep(5);
  expect(source.isPaused()).toBe(true);
  for (let times = 0; times < 3; times++) second.take();
  await sleep(5);
  expect(source.isPaused()).toBe(false);
});
