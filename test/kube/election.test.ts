import { configMaps, events, leases } from "@agent-sandbox/api";
import {
  createClient,
  EventRecorder,
  FakeClock,
  type FaultRates,
  FaultyTransport,
  runLeaderElection,
  seededRandom,
} from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { type EmbeddedApi, openEmbeddedApi } from "./embedded-api.ts";

interface Candidate {
  readonly identity: string;
  /** Cuts or restores its connection. */
  rates: FaultRates;
  readonly stop: () => Promise<void>;
}

class Election {
  readonly leaders = new Set<string>();
  readonly history: string[] = [];
  readonly #api: EmbeddedApi;
  readonly #clock: FakeClock;
  readonly #random: () => number;

  constructor(api: EmbeddedApi, clock: FakeClock, seed = 1) {
    this.#api = api;
    this.#clock = clock;
    this.#random = seededRandom(seed);
  }

  join(identity: string): Candidate {
    const stop = new AbortController();
    const candidate: Candidate = { identity, rates: {}, stop: () => (stop.abort(new Error("stopped")), running) };
    const transport = new FaultyTransport({
      transport: this.#api.transport,
      random: this.#random,
      clock: this.#clock,
      rates: () => candidate.rates,
    });
    const running = runLeaderElection({
      client: createClient(transport),
      clock: this.#clock,
      namespace: "default",
      name: "controllers",
      identity,
      random: this.#random,
      signal: stop.signal,
      lead: (signal) => this.#lead(identity, signal),
    });
    return candidate;
  }

  async #lead(identity: string, signal: AbortSignal): Promise<void> {
    this.leaders.add(identity);
    this.history.push(identity);
    expect([...this.leaders]).toEqual([identity]);
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    this.leaders.delete(identity);
  }
}

const cut: FaultRates = { lostRequest: 1 };

test("runLeaderElection: three candidates: one leads, and its release hands over within a retry period", async () => {
  const clock = new FakeClock();
  await using api = openEmbeddedApi(clock);
  const election = new Election(api, clock);
  const candidates = ["a", "b", "c"].map((identity) => election.join(identity));
  await clock.advance(10_000);
  expect(election.history).toHaveLength(1);
  const [leader] = election.history;
  await candidates.find(({ identity }) => identity === leader)?.stop();
  await clock.advance(2_500);
  expect(election.history).toHaveLength(2);
  expect(election.leaders.size).toBe(1);
  for (const { stop } of candidates) await stop();
  expect((await api.client.get(leases, { namespace: "default", name: "controllers" })).spec?.holderIdentity).toBe("");
});

test("runLeaderElection: a leader that is cut off: stops before another begins", async () => {
  const clock = new FakeClock();
  await using api = openEmbeddedApi(clock);
  const election = new Election(api, clock);
  const first = election.join("a");
  await clock.advance(5_000);
  const second = election.join("b");
  await clock.advance(5_000);
  first.rates = cut;
  await clock.advance(12_000);
  expect(election.leaders.size).toBe(0);
  await clock.advance(10_000);
  expect([...election.leaders]).toEqual(["b"]);
  first.rates = {};
  await clock.advance(20_000);
  expect([...election.leaders]).toEqual(["b"]);
  await first.stop();
  await second.stop();
});

test("runLeaderElection: connections that fail at random: never two leaders, whatever the seed", async () => {
  for (let seed = 1; seed <= 10; seed += 1) {
    const clock = new FakeClock();
    await using api = openEmbeddedApi(clock);
    const election = new Election(api, clock, seed);
    const candidates = ["a", "b", "c"].map((identity) => election.join(identity));
    const random = seededRandom(seed + 1_000);
    for (let step = 0; step < 20; step += 1) {
      for (const candidate of candidates) {
        candidate.rates = random() < 0.4 ? cut : { lostAnswer: random() / 2, conflict: random() / 4, serverError: 0.1 };
      }
      await clock.advance(random() * 20_000);
      expect(election.leaders.size).toBeLessThanOrEqual(1);
    }
    expect(election.history.length).toBeGreaterThan(0);
    for (const candidate of candidates) {
      candidate.rates = {};
      await candidate.stop();
    }
  }
});

test("EventRecorder: on the API server: writes one event and counts its repetitions in it", async () => {
  const clock = new FakeClock();
  await using api = openEmbeddedApi(clock);
  const errors: unknown[] = [];
  const recorder = new EventRecorder({
    client: api.client,
    clock,
    reportingController: "agent-sandbox.dev/test",
    reportingInstance: "host-1",
    onError: (error) => errors.push(error),
  });
  const regarding = await api.client.create(configMaps, {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "a", namespace: "default" },
  });
  for (let count = 0; count < 4; count += 1) {
    recorder.record({ regarding, type: "Normal", reason: "Woken", action: "Wake", note: `wake ${count}` });
    await clock.advance(1_000);
  }
  await recorder.close();
  expect(errors).toEqual([]);
  const { items } = await api.client.list(events, { namespace: "default" });
  expect(items).toHaveLength(1);
  expect(items[0]).toMatchObject({ reason: "Woken", regarding: { name: "a" }, series: { count: 4 } });
});
