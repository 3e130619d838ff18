import { expect, test } from "vitest";
import { ApiServer } from "../../packages/server/src/apiserver/api-server.ts";
import { admin, podBody, sandboxBody, TestServer } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { silentLogger } from "../../packages/server/src/telemetry/logger.ts";

const sandboxesPath = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
const podsPath = "/api/v1/namespaces/default/pods";

const merge = "application/merge-patch+json";
const jsonPatch = "application/json-patch+json";
const strategic = "application/strategic-merge-patch+json";
const apply = "application/apply-patch+yaml";

/** Every way to write an object, each with something that validation refuses. */
const badWrites = [
  ["POST of a kind of ours", "POST", sandboxesPath, { body: sandboxBody("bad", { operatingMode: "Sideways" }) }],
  ["POST of a built-in kind", "POST", podsPath, { body: podBody("Bad_Name") }],
  ["PUT", "PUT", `${sandboxesPath}/good`, { body: sandboxBody("good", { operatingMode: "Sideways" }) }],
  ["merge patch", "PATCH", `${sandboxesPath}/good`, { type: merge, body: { spec: { operatingMode: "Sideways" } } }],
  [
    "JSON patch",
    "PATCH",
    `${sandboxesPath}/good`,
    { type: jsonPatch, body: [{ op: "add", path: "/spec/operatingMode", value: "Sideways" }] },
  ],
  [
    "strategic merge patch",
    "PATCH",
    `${podsPath}/good`,
    { type: strategic, body: { metadata: { labels: { a: "not a value!" } } } },
  ],
  [
    "apply",
    "PATCH",
    `${sandboxesPath}/good?fieldManager=test&force=true`,
    { type: apply, body: sandboxBody("good", { operatingMode: "Sideways" }) },
  ],
  [
    "apply that creates",
    "PATCH",
    `${sandboxesPath}/other?fieldManager=test`,
    { type: apply, body: sandboxBody("other", { operatingMode: "Sideways" }) },
  ],
  [
    "patch of the status",
    "PATCH",
    `${sandboxesPath}/good/status`,
    { type: merge, body: { status: { conditions: [{ type: "Ready", status: "Perhaps" }] } } },
  ],
] as const;

test("invariant stored-is-validated: no way to write brings an invalid object into the store", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  await server.call("POST", "/api/v1/namespaces", { body: { metadata: { name: "default" } } });
  expect((await server.call("POST", sandboxesPath, { body: sandboxBody("good") })).status).toBe(201);
  expect((await server.call("POST", podsPath, { body: podBody("good") })).status).toBe(201);
  const before = server.store.revision;
  for (const [what, method, path, options] of badWrites) {
    expect(await server.call(method, path, options), what).toMatchObject({ status: 422, body: { reason: "Invalid" } });
    expect(server.store.revision, `what ${what} wrote`).toBe(before);
  }
});

test("invariant no-state-between-requests: two API servers over one store are one API", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  await server.call("POST", "/api/v1/namespaces", { body: { metadata: { name: "default" } } });
  await using second = await beside(server);
  expect((await server.call("POST", sandboxesPath, { body: sandboxBody("a") })).status).toBe(201);
  expect((await second.call("GET", `${sandboxesPath}/a`)).status).toBe(200);
  const suspend = { type: merge, body: { spec: { operatingMode: "Suspended" } } };
  expect((await second.call("PATCH", `${sandboxesPath}/a`, suspend)).status).toBe(200);
  const read = await server.call("GET", `${sandboxesPath}/a`);
  expect(read.body).toMatchObject({ metadata: { generation: 2 }, spec: { operatingMode: "Suspended" } });
  expect((await second.call("GET", sandboxesPath)).text).toBe((await server.call("GET", sandboxesPath)).text);
  expect((await server.call("DELETE", `${sandboxesPath}/a`)).status).toBe(200);
  expect((await second.call("GET", `${sandboxesPath}/a`)).status).toBe(404);
});

/** Another API server over the same store, with nothing of the first one's memory. */
async function beside({ store, clock }: TestServer): Promise<{ call: TestServer["call"] } & AsyncDisposable> {
  const authorizer = { authorize: () => ({ verdict: "allow" as const, reason: "test" }) };
  const api = new ApiServer({ store, clock, logger: silentLogger(), authorizer });
  const call = TestServer.prototype.call.bind({ api, admin } as never);
  return { call, [Symbol.asyncDispose]: () => api.close() };
}
