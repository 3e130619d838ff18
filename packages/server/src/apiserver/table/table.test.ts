import type { JsonObject } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { listAt } from "../json/json.ts";
import { podBody, sandboxBody, TestServer } from "../testing/test-server.ts";
import { humanDuration } from "./human-duration.ts";
import { compileJsonPath } from "./json-path.ts";

const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

test("table: pods show kubectl's columns", async () => {
  await using server = new TestServer();
  await server.call("POST", "/api/v1/namespaces/default/pods", { body: podBody("a") });
  server.clock.advance(150_000);
  const { body } = await server.call("GET", "/api/v1/namespaces/default/pods", { accept });
  expect((listAt(body, "columnDefinitions") as JsonObject[]).map(({ name }) => name)).toEqual([
    "Name",
    "Ready",
    "Status",
    "Restarts",
    "Age",
    "IP",
    "Node",
    "Nominated Node",
    "Readiness Gates",
  ]);
  expect(listAt(body, "rows")).toMatchObject([
    {
      cells: ["a", "0/1", "Pending", "0", "2m30s", "<none>", "<none>", "<none>", "<none>"],
      object: { kind: "PartialObjectMetadata" },
    },
  ]);
});

test("table: a custom resource shows the columns of its CRD", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const path = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
  await server.call("POST", path, { body: sandboxBody("s") });
  const status = {
    conditions: [
      { type: "Ready", status: "True", reason: "Up", message: "", lastTransitionTime: "2026-03-01T10:00:00Z" },
    ],
  };
  await server.call("PATCH", `${path}/s/status`, { type: "application/merge-patch+json", body: { status } });
  const { body } = await server.call("GET", path, { accept });
  expect((listAt(body, "rows") as JsonObject[]).map(({ cells }) => cells)).toEqual([["s", "True", "Up", null, "0s"]]);
});

test("table: a watch sends the columns once", async () => {
  await using server = new TestServer();
  const pods = "/api/v1/namespaces/default/pods";
  await server.call("POST", pods, { body: podBody("a") });
  await server.call("POST", pods, { body: podBody("b") });
  const stop = new AbortController();
  const frames = server.watch(`${pods}?watch=1`, stop.signal, accept);
  const first = (await frames.next()).value;
  const second = (await frames.next()).value;
  expect(listAt(first?.object, "columnDefinitions").length).toBeGreaterThan(0);
  expect(second?.object["columnDefinitions"]).toBeNull();
  stop.abort();
});

test.each([
  [0, "0s"],
  [119_000, "119s"],
  [121_000, "2m1s"],
  [600_000, "10m"],
  [3 * 3_600_000 + 60_000, "3h1m"],
  [9 * 3_600_000, "9h"],
  [49 * 3_600_000, "2d1h"],
  [10 * 86_400_000, "10d"],
])("humanDuration: %d ms is %s", (ms, text) => {
  expect(humanDuration(ms)).toBe(text);
});

test.each([
  [".a.b", ["x"]],
  ['.list[?(@.type=="Ready")].status', ["True"]],
  [".list[?(@.type=='Ready')].status", ["True"]],
  ['.list[?(@.type!="Ready")].type', ["Other"]],
  ["{.list[?(@.type=='Ready')].status}", ["True"]],
  [".list[0].type", ["Other"]],
  ["['a']['b']", ["x"]],
  [".list[*].type", ["Other", "Ready"]],
  [".a.none", []],
])("compileJsonPath: %s", (path, found) => {
  const root = { a: { b: "x" }, list: [{ type: "Other" }, { type: "Ready", status: "True" }] };
  expect(compileJsonPath(path)?.(root)).toEqual(found);
});

test("table: a sandbox shows the conditions that its columns select", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const path = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
  await server.call("POST", path, { body: sandboxBody("a") });
  const conditions = ["Other", "Ready"].map((type) => ({
    type,
    status: "True",
    reason: `${type}Reason`,
    message: "",
    lastTransitionTime: "2026-03-01T10:00:00Z",
  }));
  const type = "application/merge-patch+json";
  const patched = await server.call("PATCH", `${path}/a/status`, { type, body: { status: { conditions } } });
  expect(patched.status, patched.text).toBe(200);
  const { body } = await server.call("GET", path, { accept });
  const names = (listAt(body, "columnDefinitions") as JsonObject[]).map(({ name }) => name);
  const [row] = listAt(body, "rows") as JsonObject[];
  const cell = (name: string) => listAt(row, "cells")[names.indexOf(name)];
  expect([cell("Ready"), cell("Reason")]).toEqual(["True", "ReadyReason"]);
});
