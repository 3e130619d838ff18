import { pods } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { createClient } from "../kube-client.ts";
import { FakeClock } from "./fake-clock.ts";
import { type FaultRates, FaultyTransport } from "./faulty-transport.ts";
import { type ScriptedAnswer, ScriptedTransport } from "./scripted-transport.ts";
import { seededRandom } from "./seeded-random.ts";

const key = { namespace: "ns", name: "a" };
const event = (resourceVersion: string) => ({ type: "ADDED", object: { metadata: { name: "a", resourceVersion } } });

function faulty(rates: FaultRates, answers: readonly ScriptedAnswer[] = [{ body: { metadata: {} } }], seed = 1) {
  const real = new ScriptedTransport(answers);
  const clock = new FakeClock();
  const faults: string[] = [];
  const transport = new FaultyTransport({
    transport: real,
    random: seededRandom(seed),
    clock,
    rates: () => rates,
    onFault: (fault) => faults.push(fault),
  });
  return { client: createClient(transport), clock, real, faults };
}

async function versions(client: ReturnType<typeof createClient>): Promise<string[]> {
  const seen: string[] = [];
  for await (const { object } of client.watch(pods)) seen.push(object.metadata.resourceVersion ?? "");
  return seen;
}

test("FaultyTransport: no rates: passes everything", async () => {
  const { client, faults } = faulty({});
  await client.get(pods, key);
  expect(faults).toEqual([]);
});

test.each([
  ["conflict", "Conflict"],
  ["notFound", "NotFound"],
] as const)("FaultyTransport: %s: a write is refused and not carried out", async (fault, reason) => {
  const { client, real, faults } = faulty({ [fault]: 1 });
  await expect(client.patch(pods, key, { type: "merge", body: {} })).rejects.toMatchObject({ reason });
  expect(real.requests).toEqual([]);
  expect(faults).toEqual([fault]);
});

test("FaultyTransport: gone: lists and watches, and nothing else", async () => {
  const { client } = faulty({ gone: 1 });
  await client.get(pods, key);
  await expect(client.list(pods, { limit: 1 })).rejects.toMatchObject({ status: 410 });
});

test("FaultyTransport: a lost answer: the request was carried out", async () => {
  const { client, real } = faulty({ lostAnswer: 1 });
  await expect(client.get(pods, key)).rejects.toMatchObject({ reason: "ServiceUnavailable" });
  expect(real.requests).toHaveLength(1);
});

test("FaultyTransport: events: come twice, or are lost with a 410, or the watch breaks before them", async () => {
  const lines = [event("1"), event("2")];
  expect(await versions(faulty({ eventDoubled: 1 }, [{ lines }]).client)).toEqual(["1", "1", "2", "2"]);
  await expect(versions(faulty({ eventDropped: 1 }, [{ lines }]).client)).rejects.toMatchObject({ status: 410 });
  await expect(versions(faulty({ watchBreak: 1 }, [{ lines }]).client)).rejects.toThrow("watch broke");
});

test("FaultyTransport: delayed events: wait for the clock", async () => {
  const { client, clock } = faulty({ eventDelayed: 1 }, [{ lines: [event("1")] }]);
  let seen: string[] = [];
  void versions(client).then((all) => (seen = all));
  await clock.settled();
  expect(seen).toEqual([]);
  await clock.advance(5_000);
  expect(seen).toEqual(["1"]);
});

test("seededRandom: a seed: always gives the same numbers, evenly spread", () => {
  const first = seededRandom(42);
  const numbers = Array.from({ length: 1_000 }, first);
  const second = seededRandom(42);
  expect(Array.from({ length: 1_000 }, second)).toEqual(numbers);
  expect(numbers.every((number) => number >= 0 && number < 1)).toBe(true);
  const mean = numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
  expect(mean).toBeGreaterThan(0.45);
  expect(mean).toBeLessThan(0.55);
});
