import { type ConfigMap, configMaps } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { compareVersions, Informer, type InformerOptions } from "./informer.ts";
import { createClient } from "./kube-client.ts";
import { FakeClock } from "./testing/fake-clock.ts";
import { type ScriptedAnswer, ScriptedTransport } from "./testing/scripted-transport.ts";

function configMap(name: string, resourceVersion: number, uid = `uid-${name}`): ConfigMap {
  return {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name, namespace: "ns", uid, resourceVersion: String(resourceVersion), labels: { app: name } },
  };
}

const list = (resourceVersion: number, ...items: ConfigMap[]): ScriptedAnswer => ({
  body: { kind: "ConfigMapList", apiVersion: "v1", metadata: { resourceVersion: String(resourceVersion) }, items },
});
const event = (type: string, object: unknown): unknown => ({ type, object });
const bookmark = (resourceVersion: number): unknown => event("BOOKMARK", configMap("", resourceVersion));
const expired = { kind: "Status", apiVersion: "v1", status: "Failure", reason: "Expired", code: 410, message: "old" };

async function play(answers: ScriptedAnswer[], options: Partial<InformerOptions<ConfigMap>> = {}) {
  const clock = new FakeClock();
  const transport = new ScriptedTransport(answers);
  const log: string[] = [];
  const errors: unknown[] = [];
  const informer = new Informer<ConfigMap>({
    client: createClient(transport),
    resource: configMaps,
    clock,
    random: () => 0,
    onError: (error) => errors.push(error),
    ...options,
  });
  const versionOf = ({ metadata }: ConfigMap): string => `${metadata.name}@${metadata.resourceVersion}`;
  informer.addHandler({
    onAdd: (object, { initial }) => log.push(`${initial ? "initial" : "add"} ${versionOf(object)}`),
    onUpdate: (old, object) => log.push(`update ${versionOf(old)} ${versionOf(object)}`),
    onDelete: (last, { stale }) => log.push(`${stale ? "stale " : ""}delete ${versionOf(last)}`),
  });
  const stop = new AbortController();
  const running = informer.run(stop.signal);
  await clock.settled();
  return { clock, transport, informer, log, errors, stop: async () => (stop.abort(new Error("stopped")), running) };
}

test("Informer: a list and a watch: handlers are told in order, and the cache is what they say", async () => {
  const { informer, log, stop } = await play([
    list(10, configMap("a", 5), configMap("b", 7)),
    {
      lines: [
        event("MODIFIED", configMap("a", 11)),
        event("ADDED", configMap("c", 12)),
        event("DELETED", configMap("b", 13)),
      ],
      hold: true,
    },
  ]);
  expect(log).toEqual(["initial a@5", "initial b@7", "update a@5 a@11", "add c@12", "delete b@13"]);
  expect(informer.list().map(({ metadata }) => metadata.name)).toEqual(["a", "c"]);
  expect(informer.hasSynced).toBe(true);
  await stop();
});

test("Informer: a long list: is read in pages", async () => {
  const first = list(10, configMap("a", 5));
  const page = { body: { ...(first.body as object), metadata: { resourceVersion: "10", continue: "next" } } };
  const { transport, log, stop } = await play([page, list(10, configMap("b", 6))], { pageSize: 1 });
  expect(transport.requests.map(({ path }) => path).slice(0, 2)).toEqual([
    "/api/v1/configmaps?limit=1",
    "/api/v1/configmaps?limit=1&continue=next",
  ]);
  expect(log).toEqual(["initial a@5", "initial b@6"]);
  await stop();
});

test("Informer: a broken watch: resumes from the newest version, bookmarks included", async () => {
  const { transport, log, stop } = await play([
    list(10),
    { lines: [event("ADDED", configMap("a", 11)), bookmark(20)], breaks: true },
    { lines: [event("ADDED", configMap("b", 21))], hold: true },
  ]);
  expect(transport.requests).toHaveLength(3);
  expect(transport.requests[2]?.path).toContain("resourceVersion=20");
  expect(log).toEqual(["add a@11", "add b@21"]);
  await stop();
});

test("invariant no-lost-event: after a 410 an informer lists again, and what went away in the gap is deleted as stale", async () => {
  const { log, stop } = await play([
    list(10, configMap("a", 5), configMap("b", 6)),
    { lines: [event("ERROR", expired)] },
    list(30, configMap("a", 25)),
  ]);
  expect(log.slice(2)).toEqual(["update a@5 a@25", "stale delete b@6"]);
  await stop();
});

test("Informer: 410 as the answer to a watch: lists again", async () => {
  const { transport, stop } = await play([list(10), { status: 410, body: expired }, list(30)]);
  expect(transport.requests.map(({ path }) => path.includes("watch"))).toEqual([false, true, false, true]);
  await stop();
});

test("Informer: events that come twice or late: change nothing", async () => {
  const { log, stop } = await play([
    list(10, configMap("a", 9)),
    {
      lines: [
        event("MODIFIED", configMap("a", 12)),
        event("MODIFIED", configMap("a", 11)),
        event("MODIFIED", configMap("a", 12)),
        event("DELETED", configMap("a", 10)),
      ],
      hold: true,
    },
  ]);
  expect(log).toEqual(["initial a@9", "update a@9 a@12"]);
  await stop();
});

test("Informer: the same name with another uid: is a deletion and an addition", async () => {
  const { log, stop } = await play([
    list(10, configMap("a", 5, "first")),
    { lines: [event("MODIFIED", configMap("a", 12, "second"))], hold: true },
  ]);
  expect(log).toEqual(["initial a@5", "stale delete a@5", "add a@12"]);
  await stop();
});

test("Informer: a server that is down: asks again with growing waits, and syncs when it is back", async () => {
  const down = { status: 503, body: { kind: "Status", code: 503, message: "down" } };
  const { informer, clock, transport, errors, stop } = await play([
    down,
    down,
    down,
    down,
    list(10, configMap("a", 5)),
  ]);
  expect(transport.requests).toHaveLength(2);
  expect(informer.hasSynced).toBe(false);
  await clock.advance(50);
  await clock.advance(100);
  await clock.advance(200);
  expect(informer.hasSynced).toBe(true);
  expect(errors).toHaveLength(4);
  await stop();
});

test("Informer: a watch whose server died without a word: is given up after its time", async () => {
  const { clock, transport, stop } = await play([list(10), { hold: true }]);
  expect(transport.requests[1]?.path).toContain("timeoutSeconds=300");
  await clock.advance(330_000);
  expect(transport.requests).toHaveLength(3);
  await stop();
});

test("Informer: indexes: follow every change", async () => {
  const { informer, stop } = await play(
    [
      list(10, configMap("a", 5), configMap("b", 6)),
      {
        lines: [
          event("MODIFIED", {
            ...configMap("a", 11),
            metadata: { ...configMap("a", 11).metadata, labels: { app: "b" } },
          }),
          event("DELETED", configMap("b", 12)),
        ],
        hold: true,
      },
    ],
    { indexers: { app: ({ metadata }) => [metadata.labels?.["app"] ?? ""] } },
  );
  expect(informer.byIndex("app", "a")).toEqual([]);
  expect(informer.byIndex("app", "b").map(({ metadata }) => metadata.name)).toEqual(["a"]);
  expect(() => informer.byIndex("nosuch", "a")).toThrow("bug: no index named nosuch");
  await stop();
});

test("Informer: transform and freeze: what is kept is stripped and cannot be changed", async () => {
  const { informer, stop } = await play([list(10, configMap("a", 5))], {
    freeze: true,
    transform: (object) => {
      delete object.metadata.labels;
      return object;
    },
  });
  const kept = informer.get("ns/a") as ConfigMap;
  expect(kept.metadata.labels).toBeUndefined();
  expect(() => (kept.metadata.name = "x")).toThrow(TypeError);
  await stop();
});

test("Informer: synced: waits for the first list, or for the signal", async () => {
  const { informer, stop } = await play([{ hold: true }]);
  const impatient = new AbortController();
  const waiting = informer.synced(impatient.signal);
  impatient.abort(new Error("no patience"));
  await expect(waiting).rejects.toThrow("no patience");
  await stop();
});

test("compareVersions: integers of any length, in numeric order", () => {
  expect(compareVersions("9", "10")).toBeLessThan(0);
  expect(compareVersions("100000000000000000001", "100000000000000000000")).toBeGreaterThan(0);
  expect(compareVersions("7", "7")).toBe(0);
  expect(compareVersions("opaque", "7")).toBeGreaterThan(0);
});
