import { type ConfigMap, configMaps, ignore } from "@agent-sandbox/api";
import {
  type Client,
  createClient,
  FakeClock,
  type FaultRates,
  FaultyTransport,
  Informer,
  seededRandom,
} from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { type EmbeddedApi, openEmbeddedApi } from "./embedded-api.ts";

const namespace = "default";

function configMap(name: string, value: string): ConfigMap {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace }, data: { value } };
}

/** One random change by a user whose connection is sound. */
async function change(client: Client, random: () => number, step: number): Promise<void> {
  const name = `cm-${Math.floor(random() * 8)}`;
  const roll = random();
  if (roll < 0.4) await client.create(configMaps, configMap(name, `${step}`)).catch(ignore("AlreadyExists"));
  else if (roll < 0.75) {
    const patch = { type: "merge", body: { data: { value: `${step}` } } } as const;
    await client.patch(configMaps, { namespace, name }, patch).catch(ignore("NotFound"));
  } else await client.delete(configMaps, { namespace, name }).catch(ignore("NotFound"));
}

const versionsOf = (objects: readonly ConfigMap[]): string[] =>
  objects.map(({ metadata }) => `${metadata.name}@${metadata.resourceVersion}`).sort();

/** Follows the handlers alone, as a controller does. */
function follow(informer: Informer<ConfigMap>): Map<string, ConfigMap> {
  const followed = new Map<string, ConfigMap>();
  informer.addHandler({
    onAdd: (object) => {
      expect(followed.has(object.metadata.name)).toBe(false);
      followed.set(object.metadata.name, object);
    },
    onUpdate: (old, object) => {
      expect(followed.get(object.metadata.name)).toBe(old);
      followed.set(object.metadata.name, object);
    },
    onDelete: (last) => expect(followed.delete(last.metadata.name)).toBe(true),
  });
  return followed;
}

async function mirrorThrough(api: EmbeddedApi, clock: FakeClock, seed: number, rates: FaultRates): Promise<number> {
  const random = seededRandom(seed);
  let faults = 0;
  let current = rates;
  const transport = new FaultyTransport({
    transport: api.transport,
    random,
    clock,
    rates: () => current,
    onFault: () => (faults += 1),
  });
  const client = createClient(transport);
  const informer = new Informer({ client, resource: configMaps, clock, random, freeze: true, pageSize: 3 });
  const followed = follow(informer);
  const stop = new AbortController();
  const running = informer.run(stop.signal);
  for (let step = 0; step < 60; step += 1) {
    await change(api.client, random, step);
    if (random() < 0.3) await clock.advance(random() * 2_000);
  }
  current = {};
  await clock.advance(60_000);
  const truth = await api.client.list(configMaps, { namespace });
  expect(versionsOf(informer.list())).toEqual(versionsOf(truth.items));
  expect(versionsOf([...followed.values()])).toEqual(versionsOf(truth.items));
  stop.abort(new Error("done"));
  await running;
  return faults;
}

const rates: FaultRates = {
  gone: 0.1,
  serverError: 0.1,
  lostRequest: 0.05,
  lostAnswer: 0.05,
  watchBreak: 0.1,
  eventDoubled: 0.1,
  eventDropped: 0.05,
  eventDelayed: 0.2,
};

test("Informer: a sound connection to the API server: mirrors every change", async () => {
  const clock = new FakeClock();
  await using api = openEmbeddedApi(clock);
  expect(await mirrorThrough(api, clock, 1, {})).toBe(0);
});

const seeds = Number(process.env["MIRROR_SEEDS"] ?? 25);

test("Informer: through broken, late and doubled events: ends up with the server's state, whatever the seed", async () => {
  let faults = 0;
  for (let seed = 1; seed <= seeds; seed += 1) {
    const clock = new FakeClock();
    await using api = openEmbeddedApi(clock);
    await mirrorThrough(api, clock, seed, rates).then(
      (count) => (faults += count),
      (cause: unknown) => {
        throw new Error(`seed ${seed}`, { cause });
      },
    );
  }
  expect(faults).toBeGreaterThan(seeds);
});
