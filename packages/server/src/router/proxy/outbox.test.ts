import { setImmediate as turnEnd } from "node:timers/promises";
import { expect, test } from "vitest";
import { Outbox } from "./outbox.ts";

function recorder(): { sent: number[]; letter: (id: number) => { depart(): void } } {
  const sent: number[] = [];
  return { sent, letter: (id) => ({ depart: () => sent.push(id) }) };
}

test("outbox: what is posted in one turn departs at its end, in order", async () => {
  const { sent, letter } = recorder();
  const outbox = new Outbox();
  for (const id of [1, 2, 3]) outbox.post(letter(id));
  await Promise.resolve();
  expect(sent).toEqual([]);
  await turnEnd();
  expect(sent).toEqual([1, 2, 3]);
});

test("outbox: what is posted by a departure departs in the next turn", async () => {
  const { sent, letter } = recorder();
  const outbox = new Outbox();
  outbox.post({ depart: () => outbox.post(letter(2)) });
  outbox.post(letter(1));
  await turnEnd();
  expect(sent).toEqual([1]);
  await turnEnd();
  expect(sent).toEqual([1, 2]);
});

test("outbox: a long turn: those before depart early, the last stays until the end", async () => {
  const { sent, letter } = recorder();
  const outbox = new Outbox();
  for (let id = 0; id < 129; id += 1) outbox.post(letter(id));
  expect(sent).toHaveLength(128);
  await turnEnd();
  expect(sent).toEqual(Array.from({ length: 129 }, (_, id) => id));
});
