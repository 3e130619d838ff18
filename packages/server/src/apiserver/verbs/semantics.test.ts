import type { JsonObject } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { objectAt } from "../json/json.ts";
import { podBody, sandboxBody, TestServer } from "../testing/test-server.ts";

const pods = "/api/v1/namespaces/default/pods";
const maps = "/api/v1/namespaces/default/configmaps";

test("versions: an object written as v1alpha1 is stored and read as v1beta1, with a deprecation warning", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const at = (version: string) => `/apis/agents.x-k8s.io/${version}/namespaces/default/sandboxes`;
  const { operatingMode: _mode, ...spec } = objectAt(sandboxBody("s"), "spec") ?? {};
  const body = { ...sandboxBody("s"), apiVersion: "agents.x-k8s.io/v1alpha1", spec: { ...spec, replicas: 0 } };
  const created = await server.call("POST", at("v1alpha1"), { body });
  expect(created.status, created.text).toBe(201);
  expect(created.headers["warning"]).toContain("deprecated");
  const read = await server.call("GET", `${at("v1beta1")}/s`);
  expect(read.body).toMatchObject({ apiVersion: "agents.x-k8s.io/v1beta1", spec: { operatingMode: "Suspended" } });
  const old = await server.call("GET", `${at("v1alpha1")}/s`);
  expect(old.body).toMatchObject({ apiVersion: "agents.x-k8s.io/v1alpha1", spec: { replicas: 0 } });
});

test("watch: an object that stops matching the selector is shown as deleted", async () => {
  await using server = new TestServer();
  await server.call("POST", pods, { body: podBody("a", {}, { labels: { app: "x" } }) });
  const stop = new AbortController();
  const frames = server.watch(`${pods}?watch=1&labelSelector=app%3Dx`, stop.signal);
  expect((await frames.next()).value).toMatchObject({ type: "ADDED" });
  const changed = await server.call("PATCH", `${pods}/a`, {
    type: "application/merge-patch+json",
    body: { metadata: { labels: { app: "y" } } },
  });
  const gone = (await frames.next()).value;
  expect(gone).toMatchObject({ type: "DELETED", object: { metadata: { labels: { app: "x" } } } });
  expect(objectAt(gone?.object, "metadata")?.["resourceVersion"]).toBe(
    objectAt(changed.body, "metadata")?.["resourceVersion"],
  );
  stop.abort();
});

test("watch: initial events end with a marked bookmark, and bookmarks follow in silence", async () => {
  await using server = new TestServer();
  await server.call("POST", pods, { body: podBody("a") });
  const stop = new AbortController();
  const query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
  const frames = server.watch(`${pods}?${query}`, stop.signal);
  expect((await frames.next()).value).toMatchObject({ type: "ADDED" });
  expect((await frames.next()).value).toMatchObject({
    type: "BOOKMARK",
    object: { kind: "Pod", metadata: { annotations: { "k8s.io/initial-events-end": "true" } } },
  });
  const next = frames.next();
  await new Promise((resolve) => setImmediate(resolve));
  server.clock.advance(60_000);
  expect((await next).value).toMatchObject({ type: "BOOKMARK" });
  stop.abort();
});

test("watch: a resourceVersion that does not exist yet is an error frame", async () => {
  await using server = new TestServer();
  const frames = server.watch(`${pods}?watch=1&resourceVersion=999999`, new AbortController().signal);
  expect((await frames.next()).value).toMatchObject({ type: "ERROR", object: { kind: "Status", code: 504 } });
  expect((await frames.next()).done).toBe(true);
});

test("dry run: answers as if, and stores nothing", async () => {
  await using server = new TestServer();
  const { status, body } = await server.call("POST", `${pods}?dryRun=All`, { body: podBody("a") });
  expect(status).toBe(201);
  expect(objectAt(body, "metadata")?.["uid"]).toBeDefined();
  expect((await server.call("GET", `${pods}/a`)).status).toBe(404);
});

test("generateName: makes a name, and tries again when it is taken", async () => {
  const suffixes = ["aaaaa", "aaaaa", "bbbbb"];
  const ids = { uuid: () => "00000000-0000-4000-8000-000000000000", nameSuffix: () => suffixes.shift() ?? "ccccc" };
  await using server = new TestServer({ ids });
  const body = { ...podBody("x"), metadata: { generateName: "p-" } };
  expect((await server.call("POST", pods, { body })).body["metadata"]).toMatchObject({ name: "p-aaaaa" });
  expect((await server.call("POST", pods, { body })).body["metadata"]).toMatchObject({
    name: "p-bbbbb",
    generateName: "p-",
  });
});

test("delete: preconditions on uid and resourceVersion are checked", async () => {
  await using server = new TestServer();
  await server.call("POST", pods, { body: podBody("a") });
  const wrong = await server.call("DELETE", `${pods}/a`, { body: { preconditions: { uid: "nope" } } });
  expect(wrong.status).toBe(409);
  expect(wrong.body["message"]).toContain("Precondition failed: UID in precondition: nope");
  expect((await server.call("GET", `${pods}/a`)).status).toBe(200);
});

test("delete: foreground and orphan put their finalizers on the object", async () => {
  await using server = new TestServer();
  for (const [name, policy, finalizer] of [
    ["a", "Foreground", "foregroundDeletion"],
    ["b", "Orphan", "orphan"],
  ] as const) {
    await server.call("POST", maps, { body: { metadata: { name } } });
    const { body } = await server.call("DELETE", `${maps}/${name}`, { body: { propagationPolicy: policy } });
    expect(body["metadata"]).toMatchObject({ finalizers: [finalizer], deletionTimestamp: "2026-03-01T10:00:00Z" });
  }
});

test("deletecollection: deletes what the selector chooses", async () => {
  await using server = new TestServer();
  for (const [name, app] of [
    ["a", "x"],
    ["b", "x"],
    ["c", "y"],
  ])
    await server.call("POST", maps, { body: { metadata: { name, labels: { app } } } });
  await server.call("DELETE", `${maps}?labelSelector=app%3Dx`);
  const left = (await server.call("GET", maps)).body["items"] as { metadata: { name: string } }[];
  expect(left.map((item) => item.metadata.name)).toEqual(["c"]);
});

test("bodies: broken protobuf and a wrong type are 400, YAML is read", async () => {
  await using server = new TestServer();
  const protobuf = await server.call("POST", maps, { type: "application/vnd.kubernetes.protobuf", body: "k8s\u0000" });
  expect(protobuf.status).toBe(400);
  const yaml = await server.call("POST", maps, {
    type: "application/yaml",
    body: "metadata: {name: from-yaml}\ndata: {a: '1'}\n",
  });
  expect(yaml.status).toBe(201);
  const wrong = await server.call("POST", maps, { body: { metadata: { name: "z" }, data: { a: 1 } } });
  expect(wrong.status).toBe(400);
  expect(wrong.body["message"]).toContain(
    "cannot unmarshal number into Go struct field ConfigMap.data.a of type string",
  );
});

test("accept: protobuf before JSON is answered in JSON, protobuf alone is 406", async () => {
  await using server = new TestServer();
  expect(
    (await server.call("GET", maps, { accept: "application/vnd.kubernetes.protobuf,application/json" })).status,
  ).toBe(200);
  expect((await server.call("GET", maps, { accept: "application/vnd.kubernetes.protobuf" })).status).toBe(406);
});

test("strategic merge patch: merges lists by their key and honours directives", async () => {
  await using server = new TestServer();
  const services = "/api/v1/namespaces/default/services";
  const spec = {
    ports: [
      { name: "a", port: 80 },
      { name: "b", port: 81 },
    ],
  };
  await server.call("POST", services, { body: { metadata: { name: "s" }, spec } });
  const type = "application/strategic-merge-patch+json";
  const patch = {
    spec: {
      ports: [
        { port: 81, $patch: "delete" },
        { port: 80, targetPort: 8080 },
      ],
    },
  };
  const { body } = await server.call("PATCH", `${services}/s`, { type, body: patch });
  expect(objectAt(body, "spec")?.["ports"]).toEqual([{ name: "a", port: 80, protocol: "TCP", targetPort: 8080 }]);
});

test("paths: tricks are refused", async () => {
  await using server = new TestServer();
  for (const path of [
    "/api/v1/namespaces/..%2fx/pods",
    "/api/v1/namespaces/%2e%2e/pods",
    "/api/v1/namespaces/a%00b/pods",
    "/api/v1/namespaces/%zz/pods",
  ]) {
    expect((await server.call("GET", path)).status, path).toBe(400);
  }
});

test("limits: a watch counts as one in every form that it can be asked for", async () => {
  for (const form of [`${pods}?watch=True`, `${pods}?watch=`, pods.replace("/api/v1/", "/api/v1/watch/")]) {
    await using server = new TestServer({ limits: { streamsMax: 1 } });
    const stop = new AbortController();
    const first = server.watch(form, stop.signal);
    const pending = first.next();
    expect((await server.call("GET", `${pods}?watch=1`)).status, form).toBe(429);
    stop.abort();
    await pending;
  }
});

test("limits: requests beyond the bound get 429 and Retry-After", async () => {
  await using server = new TestServer({ limits: { streamsMax: 1 } });
  const stop = new AbortController();
  const first = server.watch(`${pods}?watch=1`, stop.signal);
  const pending = first.next();
  const second = await server.call("GET", `${pods}?watch=1`);
  expect(second.status).toBe(429);
  expect(second.headers["retry-after"]).toBe("1");
  stop.abort();
  await pending;
  const body = objectAt((await server.call("GET", pods)).body, "metadata") as JsonObject;
  expect(body["resourceVersion"]).toBeDefined();
});
