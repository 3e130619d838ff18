import type { JsonObject } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { listAt, objectAt, textOf } from "../json/json.ts";
import { TestServer } from "../testing/test-server.ts";

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

test("discovery: the old and the aggregated form name the same resources", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const old = await server.call("GET", "/apis/agents.x-k8s.io/v1beta1");
  const names = (listAt(old.body, "resources") as JsonObject[]).map(({ name }) => name);
  expect(names).toEqual(["sandboxes", "sandboxes/status"]);
  const { body, headers } = await server.call("GET", "/apis", { accept: aggregated });
  expect(headers["content-type"]).toBe("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
  const group = (listAt(body, "items") as JsonObject[]).find(
    (item) => objectAt(item, "metadata")?.["name"] === "agents.x-k8s.io",
  );
  const versions = listAt(group, "versions") as JsonObject[];
  expect(versions.map(({ version }) => version)).toEqual(["v1beta1", "v1alpha1"]);
  expect(listAt(versions[0], "resources")).toMatchObject([
    { resource: "sandboxes", scope: "Namespaced", subresources: [{ subresource: "status" }] },
  ]);
});

test("discovery: an unchanged aggregated answer is not sent again", async () => {
  await using server = new TestServer();
  const { headers } = await server.call("GET", "/apis", { accept: aggregated });
  const again = await server.call("GET", "/apis", {
    accept: aggregated,
    headers: { "if-none-match": headers["etag"] ?? "" },
  });
  expect(again.status).toBe(304);
});

test("discovery: kinds that nobody here runs are absent", async () => {
  await using server = new TestServer();
  expect((await server.call("GET", "/apis/apps/v1")).status).toBe(404);
  expect((await server.call("GET", "/apis/apps/v1/namespaces/default/deployments")).status).toBe(404);
  expect((await server.call("GET", "/api/v1/namespaces/default/replicationcontrollers")).status).toBe(404);
});

test("openapi: the v3 index names a document per group version, with kinds and parameters kubectl looks for", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const index = await server.call("GET", "/openapi/v3");
  const entry = objectAt(objectAt(index.body, "paths"), "apis/agents.x-k8s.io/v1beta1");
  const { body } = await server.call("GET", textOf(entry?.["serverRelativeURL"]).replace(/\?.*/, ""));
  const schemas = objectAt(objectAt(body, "components"), "schemas") ?? {};
  const sandbox = objectAt(schemas, "io.x-k8s.agents.v1beta1.Sandbox");
  expect(listAt(sandbox, "x-kubernetes-group-version-kind")).toEqual([
    { group: "agents.x-k8s.io", kind: "Sandbox", version: "v1beta1" },
  ]);
  const item = objectAt(
    objectAt(body, "paths"),
    "/apis/agents.x-k8s.io/v1beta1/namespaces/{namespace}/sandboxes/{name}",
  );
  const parameters = listAt(objectAt(item, "patch"), "parameters") as JsonObject[];
  expect(parameters.map(({ name }) => name)).toContain("fieldValidation");
});

test("openapi: every reference of the v2 document leads somewhere, and protobuf is there for older clients", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const { text, body } = await server.call("GET", "/openapi/v2");
  const definitions = objectAt(body, "definitions") ?? {};
  const missing = [...text.matchAll(/"#\/definitions\/([^"]+)"/g)]
    .map((match) => match[1] ?? "")
    .filter((name) => !Object.hasOwn(definitions, name));
  expect(missing).toEqual([]);
  const protobuf = await server.call("GET", "/openapi/v2", {
    accept: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
  });
  expect(protobuf.headers["content-type"]).toBe("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
  expect(Buffer.from(protobuf.text).subarray(0, 5)).toEqual(Buffer.from([0x0a, 3, ...Buffer.from("2.0")]));
});
