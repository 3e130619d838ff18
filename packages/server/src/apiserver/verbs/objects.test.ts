import { expect, test } from "vitest";
import { objectAt, textOf } from "../json/json.ts";
import { podBody, sandboxBody, TestServer } from "../testing/test-server.ts";

const pods = "/api/v1/namespaces/default/pods";
const sandboxes = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";

test("create: a pod gets its defaults, a uid and a resourceVersion", async () => {
  await using server = new TestServer();
  const { status, body } = await server.call("POST", pods, { body: podBody("a") });
  expect(status).toBe(201);
  expect(body["metadata"]).toMatchObject({
    name: "a",
    namespace: "default",
    creationTimestamp: "2026-03-01T10:00:00Z",
  });
  expect(objectAt(body, "metadata")?.["resourceVersion"]).toMatch(/^\d+$/);
  expect(body["spec"]).toMatchObject({
    restartPolicy: "Always",
    dnsPolicy: "ClusterFirst",
    terminationGracePeriodSeconds: 30,
  });
  expect(body["status"]).toEqual({ phase: "Pending", qosClass: "BestEffort" });
});

test("create: the same name twice is AlreadyExists", async () => {
  await using server = new TestServer();
  await server.call("POST", pods, { body: podBody("a") });
  const { status, body } = await server.call("POST", pods, { body: podBody("a") });
  expect(status).toBe(409);
  expect(body).toMatchObject({ kind: "Status", reason: "AlreadyExists", message: 'pods "a" already exists' });
});

test("get: the answer equals what create answered", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const created = await server.call("POST", sandboxes, { body: sandboxBody("s") });
  expect(created.status).toBe(201);
  const got = await server.call("GET", `${sandboxes}/s`);
  expect(got.body).toEqual(created.body);
  expect(objectAt(got.body, "metadata")?.["generation"]).toBe(1);
});

test("custom resource: a missing required field is told in Kubernetes' sentence", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const { status, body } = await server.call("POST", sandboxes, { body: { ...sandboxBody("s"), spec: {} } });
  expect(status).toBe(422);
  expect(body["message"]).toBe(
    'Sandbox.agents.x-k8s.io "s" is invalid: [spec.podTemplate: Required value, <nil>: Invalid value: null: ' +
      "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
  );
  expect(body["details"]).toMatchObject({
    causes: [
      { reason: "FieldValueRequired", message: "Required value", field: "spec.podTemplate" },
      { field: "<nil>" },
    ],
  });
});

test("custom resource: unknown fields are pruned with a warning, or refused when strict", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const body = sandboxBody("s", { colour: "red" });
  const strict = await server.call("POST", `${sandboxes}?fieldValidation=Strict`, { body });
  expect(strict.status).toBe(400);
  expect(strict.body["message"]).toContain('strict decoding error: unknown field "spec.colour"');
  const warned = await server.call("POST", sandboxes, { body });
  expect(warned.headers["warning"]).toBe('299 - "unknown field \\"spec.colour\\""');
  expect(objectAt(warned.body, "spec")).not.toHaveProperty("colour");
});

test("merge patch: changes the object and bumps the generation only for spec", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  await server.call("POST", sandboxes, { body: sandboxBody("s") });
  const type = "application/merge-patch+json";
  const labelled = await server.call("PATCH", `${sandboxes}/s`, { type, body: { metadata: { labels: { a: "b" } } } });
  expect(labelled.body["metadata"]).toMatchObject({ generation: 1, labels: { a: "b" } });
  const changed = await server.call("PATCH", `${sandboxes}/s`, {
    type,
    body: { spec: { operatingMode: "Suspended" } },
  });
  expect(changed.body["metadata"]).toMatchObject({ generation: 2 });
  const status = await server.call("PATCH", `${sandboxes}/s/status`, {
    type,
    body: { status: { replicas: 1 }, spec: { operatingMode: "Running" } },
  });
  expect(status.status).toBe(200);
  expect(status.body["metadata"]).toMatchObject({ generation: 2 });
  expect(objectAt(status.body, "spec")?.["operatingMode"]).toBe("Suspended");
});

test("update: a stale resourceVersion is a conflict", async () => {
  await using server = new TestServer();
  const { body } = await server.call("POST", pods, { body: podBody("a") });
  await server.call("PATCH", `${pods}/a`, {
    type: "application/merge-patch+json",
    body: { metadata: { labels: { x: "1" } } },
  });
  const stale = await server.call("PUT", `${pods}/a`, { body });
  expect(stale.status).toBe(409);
  expect(stale.body["message"]).toBe(
    'Operation cannot be fulfilled on pods "a": the object has been modified; please apply your changes to the latest version and try again',
  );
});

test("update: nothing changed keeps the resourceVersion", async () => {
  await using server = new TestServer();
  const { body } = await server.call("POST", pods, { body: podBody("a") });
  const again = await server.call("PUT", `${pods}/a`, { body });
  expect(again.body["metadata"]).toEqual(body["metadata"]);
});

test("list: pages with limit and continue add up to the whole, at one revision", async () => {
  await using server = new TestServer();
  for (const name of ["a", "b", "c", "d", "e"]) await server.call("POST", pods, { body: podBody(name) });
  const first = await server.call("GET", `${pods}?limit=2`);
  const meta = objectAt(first.body, "metadata") ?? {};
  expect(meta["remainingItemCount"]).toBe(3);
  await server.call("POST", pods, { body: podBody("f") });
  const rest = await server.call("GET", `${pods}?limit=10&continue=${textOf(meta["continue"])}`);
  const names = [first, rest].flatMap(({ body }) =>
    (body["items"] as { metadata: { name: string } }[]).map((item) => item.metadata.name),
  );
  expect(names).toEqual(["a", "b", "c", "d", "e"]);
  expect(objectAt(rest.body, "metadata")?.["resourceVersion"]).toBe(meta["resourceVersion"]);
});

test("list: label and field selectors choose", async () => {
  await using server = new TestServer();
  await server.call("POST", pods, { body: podBody("a", {}, { labels: { app: "x" } }) });
  await server.call("POST", pods, { body: podBody("b", {}, { labels: { app: "y" } }) });
  const names = async (query: string) =>
    ((await server.call("GET", `/api/v1/pods?${query}`)).body["items"] as { metadata: { name: string } }[]).map(
      (item) => item.metadata.name,
    );
  expect(await names("labelSelector=app%3Dx")).toEqual(["a"]);
  expect(await names("labelSelector=app+notin+(x)")).toEqual(["b"]);
  expect(await names("fieldSelector=metadata.name%3Db")).toEqual(["b"]);
  expect(await names("fieldSelector=status.phase%3DRunning")).toEqual([]);
  expect((await server.call("GET", "/api/v1/pods?fieldSelector=spec.nope%3D1")).status).toBe(400);
});

test("watch: shows the present objects, then each change once and in order", async () => {
  await using server = new TestServer();
  await server.call("POST", pods, { body: podBody("a") });
  const stop = new AbortController();
  const frames = server.watch(`${pods}?watch=true`, stop.signal);
  const next = async () => (await frames.next()).value;
  expect(await next()).toMatchObject({ type: "ADDED", object: { metadata: { name: "a" } } });
  await server.call("POST", pods, { body: podBody("b") });
  expect(await next()).toMatchObject({ type: "ADDED", object: { metadata: { name: "b" } } });
  await server.call("PATCH", `${pods}/a`, {
    type: "application/merge-patch+json",
    body: { metadata: { labels: { x: "1" } } },
  });
  expect(await next()).toMatchObject({ type: "MODIFIED", object: { metadata: { name: "a", labels: { x: "1" } } } });
  await server.call("DELETE", `${pods}/a`);
  expect(await next()).toMatchObject({ type: "DELETED", object: { metadata: { name: "a" } } });
  stop.abort();
  expect((await frames.next()).done).toBe(true);
});

test("delete: finalizers keep the object until the last is removed", async () => {
  await using server = new TestServer();
  await server.call("POST", pods, { body: podBody("a", {}, { finalizers: ["example.com/wait"] }) });
  const marked = await server.call("DELETE", `${pods}/a`);
  expect(marked.body["metadata"]).toMatchObject({
    deletionTimestamp: "2026-03-01T10:00:00Z",
    deletionGracePeriodSeconds: 0,
  });
  expect((await server.call("GET", `${pods}/a`)).status).toBe(200);
  await server.call("PATCH", `${pods}/a`, {
    type: "application/json-patch+json",
    body: [{ op: "remove", path: "/metadata/finalizers" }],
  });
  expect((await server.call("GET", `${pods}/a`)).status).toBe(404);
});

test("delete: a bound pod waits for its grace period, then goes with grace zero", async () => {
  await using server = new TestServer();
  await server.call("POST", pods, { body: podBody("a") });
  const bound = await server.call("POST", `${pods}/a/binding`, {
    body: { metadata: { name: "a" }, target: { kind: "Node", name: "n1" } },
  });
  expect(bound.status).toBe(201);
  const marked = await server.call("DELETE", `${pods}/a`);
  expect(marked.body["metadata"]).toMatchObject({
    deletionTimestamp: "2026-03-01T10:00:30Z",
    deletionGracePeriodSeconds: 30,
  });
  await server.call("DELETE", `${pods}/a?gracePeriodSeconds=0`);
  expect((await server.call("GET", `${pods}/a`)).status).toBe(404);
});
