import { expect } from "vitest";
import { type Frame, patchTypes } from "../api-call.ts";
import { at, configMap, inNamespace, widget } from "../objects.ts";
import { type Script, scripted } from "../scripted.ts";
import { type Group, kase } from "../suite.ts";

const brief = (frames: readonly Frame[]) =>
  frames.map(({ type, object }) => `${type} ${object.metadata.name ?? ""}`.trim());
const count = (wanted: number) => (frames: readonly Frame[]) => frames.length >= wanted;
const isInitialEnd = ({ type, object }: Frame): boolean =>
  type === "BOOKMARK" && object.metadata.annotations?.["k8s.io/initial-events-end"] === "true";

const scripts: Script[] = [
  ["an unparsable version is refused", { do: `GET ${at.configMaps}?watch=1&resourceVersion=abc`, loose: true }],
  [
    "sendInitialEvents without resourceVersionMatch is refused",
    { do: `GET ${at.configMaps}?watch=1&sendInitialEvents=true` },
  ],
  [
    "resourceVersionMatch without sendInitialEvents is refused",
    { do: `GET ${at.configMaps}?watch=1&resourceVersionMatch=NotOlderThan` },
  ],
  [
    "sendInitialEvents with Exact is refused",
    { do: `GET ${at.configMaps}?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact` },
  ],
  [
    "sendInitialEvents on a list is refused",
    { do: `GET ${at.configMaps}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan` },
  ],
  [
    "a version of the future ends in an error",
    { do: `GET ${at.widgets}?watch=1&resourceVersion=99999999&timeoutSeconds=1`, show: () => "opened" },
  ],
];

const coded = [
  kase("shows every change in order", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const { metadata } = await c.get(path);
    const frames = await c.api.watch(`${path}?watch=1&resourceVersion=${metadata.resourceVersion}`, count(3), {
      opened: async () => {
        await c.create(path, widget("a", { size: 1 }));
        await c.api.call("PATCH", `${path}/a`, { type: patchTypes.merge, body: { spec: { size: 2 } } });
        await c.api.call("DELETE", `${path}/a`);
      },
    });
    expect(brief(frames)).toEqual(["ADDED a", "MODIFIED a", "DELETED a"]);
    expect(frames[2]?.object.spec.size).toBe(2);
    const versions = frames.map(({ object }) => Number(object.metadata.resourceVersion));
    expect(versions).toEqual(versions.toSorted((a, b) => a - b));
    expect(new Set(versions).size).toBe(3);
  }),
  kase("without a version begins with what is there", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    await c.create(path, widget("a"));
    const frames = await c.api.watch(`${path}?watch=1`, count(2), { opened: () => c.create(path, widget("b")) });
    expect(brief(frames)).toEqual(["ADDED a", "ADDED b"]);
  }),
  kase("at version zero begins with what is there", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    await c.create(path, widget("a"));
    const frames = await c.api.watch(`${path}?watch=1&resourceVersion=0`, count(1));
    expect(brief(frames)).toEqual(["ADDED a"]);
  }),
  kase("from an old version tells what was missed", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const { metadata } = await c.create(path, widget("a"));
    await c.create(path, widget("b"));
    await c.api.call("DELETE", `${path}/a`);
    const frames = await c.api.watch(`${path}?watch=1&resourceVersion=${metadata.resourceVersion}`, count(2));
    expect(brief(frames)).toEqual(["ADDED b", "DELETED a"]);
  }),
  kase("under a label selector an object that leaves is DELETED", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const { metadata } = await c.create(path, widget("a", {}, { labels: { in: "yes" } }));
    const relabel = (value: string) =>
      c.api.call("PATCH", `${path}/a`, { type: patchTypes.merge, body: { metadata: { labels: { in: value } } } });
    const frames = await c.api.watch(
      `${path}?watch=1&labelSelector=in%3Dyes&resourceVersion=${metadata.resourceVersion}`,
      count(2),
      {
        opened: async () => {
          await relabel("no");
          await relabel("yes");
        },
      },
    );
    expect(brief(frames)).toEqual(["DELETED a", "ADDED a"]);
  }),
  kase("under a field selector shows one object", async (c) => {
    const path = inNamespace(at.configMaps, await c.namespace());
    const frames = await c.api.watch(`${path}?watch=1&fieldSelector=metadata.name%3Dmine`, count(1), {
      opened: async () => {
        await c.create(path, configMap("other"));
        await c.create(path, configMap("mine"));
      },
    });
    expect(brief(frames)).toEqual(["ADDED mine"]);
  }),
  kase("ends after timeoutSeconds", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const startMs = performance.now();
    const frames = await c.api.watch(`${path}?watch=1&timeoutSeconds=1`, () => false);
    expect(frames).toEqual([]);
    expect(performance.now() - startMs).toBeGreaterThan(800);
  }),
  kase("sends a bookmark before it ends", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    await c.create(path, widget("a"));
    const frames = await c.api.watch(
      `${path}?watch=1&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=3`,
      (all) => all.at(-1)?.type === "BOOKMARK",
    );
    const last = frames.at(-1);
    expect(last?.type).toBe("BOOKMARK");
    expect(last?.object.kind).toBe("Widget");
    expect(Number(last?.object.metadata.resourceVersion)).toBeGreaterThan(0);
  }),
  kase("sends no bookmark unasked", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const frames = await c.api.watch(`${path}?watch=1&timeoutSeconds=3`, () => false);
    expect(frames).toEqual([]);
  }),
  kase("sendInitialEvents marks the end of the state", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    for (const name of ["a", "b"]) await c.create(path, widget(name));
    const query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    const frames = await c.api.watch(`${path}?${query}`, (all) => all.some(isInitialEnd));
    expect(brief(frames.slice(0, 2)).sort()).toEqual(["ADDED a", "ADDED b"]);
    expect(frames).toHaveLength(3);
  }),
  kase("sendInitialEvents goes on with changes", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    const frames = await c.api.watch(`${path}?${query}`, (all) => all.some(({ type }) => type === "ADDED"), {
      opened: () => c.create(path, widget("late")),
    });
    expect(brief(frames).at(-1)).toBe("ADDED late");
  }),
  kase("of a version too old says 410", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const answer = await c.api.call("GET", `${path}?watch=1&resourceVersion=1&timeoutSeconds=2`);
    const first = JSON.parse(answer.text.split("\n")[0] || "{}");
    // A server that still has that version may tell what happened since; one that has not must say so in this way.
    if (first.type === "ERROR") expect([first.object.code, first.object.reason]).toEqual([410, "Expired"]);
    else expect(answer.status).toBe(200);
  }),
  kase("deprecated watch path", async (c) => {
    const ns = await c.namespace();
    await c.create(inNamespace(at.configMaps, ns), configMap("a"));
    const frames = await c.api.watch(`/api/v1/watch/namespaces/${ns}/configmaps?resourceVersion=0`, (all) =>
      brief(all).includes("ADDED a"),
    );
    expect(frames.length).toBeGreaterThan(0);
  }),
  kase("across namespaces", async (c) => {
    const [one, two] = [await c.namespace(), await c.namespace()];
    const label = c.unique("l");
    const frames = await c.api.watch(
      `/apis/conformance.test/v1/widgets?watch=1&labelSelector=suite%3D${label}`,
      count(2),
      {
        opened: async () => {
          for (const ns of [one, two])
            await c.create(inNamespace(at.widgets, ns), widget("w", {}, { labels: { suite: label } }));
        },
      },
    );
    expect(frames.map(({ object }) => object.metadata.namespace)).toEqual([one, two]);
  }),
  kase("as Table frames", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    await c.create(path, widget("a"));
    const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    const [frame] = await c.api.watch(`${path}?watch=1`, count(1), { accept });
    expect([frame?.object.kind, frame?.object.rows[0].cells[0], frame?.object.columnDefinitions.length > 0]).toEqual([
      "Table",
      "a",
      true,
    ]);
  }),
  kase("as PartialObjectMetadata frames", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    await c.create(path, widget("a", { size: 1 }));
    const accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    const [frame] = await c.api.watch(`${path}?watch=1`, count(1), { accept });
    expect([frame?.object.kind, frame?.object.spec]).toEqual(["PartialObjectMetadata", undefined]);
  }),
  kase("a finalizer holds back DELETED", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const { metadata } = await c.create(path, widget("a", {}, { finalizers: ["example.com/hold"] }));
    const frames = await c.api.watch(`${path}?watch=1&resourceVersion=${metadata.resourceVersion}`, count(2), {
      opened: async () => {
        await c.api.call("DELETE", `${path}/a`);
        await c.api.call("PATCH", `${path}/a`, { type: patchTypes.merge, body: { metadata: { finalizers: null } } });
      },
    });
    expect(brief(frames)).toEqual(["MODIFIED a", "DELETED a"]);
    expect(frames[0]?.object.metadata.deletionTimestamp).toBeTruthy();
  }),
];

/** Watches. */
export const watches: Group = {
  name: "watches",
  cases: [...scripted("watches", scripts), ...coded],
  breakage: (request, answer) =>
    request.method === "WATCH" && answer.body.type === "DELETED"
      ? { ...answer, body: { ...answer.body, type: "MODIFIED" } }
      : answer,
};
