import type { JsonObject } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { listAt, objectAt } from "../json/json.ts";
import { TestServer } from "../testing/test-server.ts";

const maps = "/api/v1/namespaces/default/configmaps";
const services = "/api/v1/namespaces/default/services";
const applyType = "application/apply-patch+yaml";

function config(data: JsonObject, metadata: JsonObject = {}): JsonObject {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "c", ...metadata }, data };
}

function apply(server: TestServer, manager: string, body: JsonObject, query = "") {
  return server.call("PATCH", `${maps}/c?fieldManager=${manager}${query}`, { type: applyType, body });
}

test("apply: creates the object and records what the manager owns", async () => {
  await using server = new TestServer();
  const { status, body } = await apply(server, "one", config({ a: "1" }, { labels: { x: "y" } }));
  expect(status).toBe(201);
  expect(listAt(objectAt(body, "metadata"), "managedFields")).toEqual([
    {
      manager: "one",
      operation: "Apply",
      apiVersion: "v1",
      time: "2026-03-01T10:00:00Z",
      fieldsType: "FieldsV1",
      fieldsV1: { "f:data": { "f:a": {} }, "f:metadata": { "f:labels": { "f:x": {} } } },
    },
  ]);
});

test("apply: a field left out is removed when nobody else owns it", async () => {
  await using server = new TestServer();
  await apply(server, "one", config({ a: "1", b: "2" }));
  await apply(server, "two", config({ b: "2", c: "3" }));
  const { body } = await apply(server, "one", config({}));
  expect(body["data"]).toEqual({ b: "2", c: "3" });
});

test("apply: changing another manager's field is a conflict that names it, and force takes it over", async () => {
  await using server = new TestServer();
  await apply(server, "one", config({ a: "1" }));
  const refused = await apply(server, "two", config({ a: "2" }));
  expect(refused.status).toBe(409);
  expect(refused.body["message"]).toBe('Apply failed with 1 conflict: conflict with "one": .data.a');
  expect(refused.body["details"]).toMatchObject({
    causes: [{ reason: "FieldManagerConflict", message: 'conflict with "one"', field: ".data.a" }],
  });
  const forced = await apply(server, "two", config({ a: "2" }), "&force=true");
  expect(forced.body["data"]).toEqual({ a: "2" });
  const managers = listAt(objectAt(forced.body, "metadata"), "managedFields") as JsonObject[];
  expect(managers.map(({ manager }) => manager)).toEqual(["two"]);
});

test("apply: the same configuration again changes nothing", async () => {
  await using server = new TestServer();
  const first = await apply(server, "one", config({ a: "1" }));
  server.clock.advance(60_000);
  const second = await apply(server, "one", config({ a: "1" }));
  expect(second.body).toEqual(first.body);
});

test("apply: a plain update takes the fields it changes away from an applier", async () => {
  await using server = new TestServer();
  await apply(server, "one", config({ a: "1", b: "2" }));
  await server.call("PATCH", `${maps}/c?fieldManager=editor`, {
    type: "application/merge-patch+json",
    body: { data: { a: "9" } },
  });
  const refused = await apply(server, "one", config({ a: "1", b: "2" }));
  expect(refused.status).toBe(409);
  expect(refused.body["message"]).toBe(
    'Apply failed with 1 conflict: conflict with "editor" using v1 at 2026-03-01T10:00:00Z: .data.a',
  );
});

test("apply: items of an associative list belong to whoever applied them", async () => {
  await using server = new TestServer();
  const service = (ports: JsonObject[]): JsonObject => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "s" },
    spec: { ports },
  });
  const send = (manager: string, ports: JsonObject[]) =>
    server.call("PATCH", `${services}/s?fieldManager=${manager}`, { type: applyType, body: service(ports) });
  await send("one", [{ name: "a", port: 80, protocol: "TCP" }]);
  const { body, status } = await send("two", [{ name: "b", port: 81, protocol: "TCP" }]);
  expect(status).toBe(200);
  expect((listAt(objectAt(body, "spec"), "ports") as JsonObject[]).map(({ name }) => name)).toEqual(["a", "b"]);
  const left = await send("two", []);
  expect((listAt(objectAt(left.body, "spec"), "ports") as JsonObject[]).map(({ name }) => name)).toEqual(["a"]);
});

test("apply: without a field manager it is refused", async () => {
  await using server = new TestServer();
  const { status, body } = await server.call("PATCH", `${maps}/c`, { type: applyType, body: config({}) });
  expect(status).toBe(422);
  expect(body["message"]).toContain("fieldManager: Required value");
});

test("apply: kubectl takes over what it applied from the client's side, and its note stays true", async () => {
  await using server = new TestServer();
  const note = "kubectl.kubernetes.io/last-applied-configuration";
  const applied = { apiVersion: "v1", data: { a: "1" }, kind: "ConfigMap", metadata: { name: "c" } };
  const body = config({ a: "1" }, { annotations: { [note]: `${JSON.stringify(applied)}\n` } });
  await server.call("POST", `${maps}?fieldManager=kubectl-client-side-apply`, { body });
  expect((await apply(server, "other", config({ a: "2" }))).status).toBe(409);
  const { status, body: taken } = await apply(server, "kubectl", config({ a: "2" }));
  expect(status).toBe(200);
  const annotations = objectAt(objectAt(taken, "metadata"), "annotations");
  expect(annotations?.[note]).toBe(
    '{"apiVersion":"v1","data":{"a":"2"},"kind":"ConfigMap","metadata":{"name":"c","namespace":"default"}}\n',
  );
});
