import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { componentUser, nodeUser } from "../../packages/server/src/apiserver/auth/components.ts";
import type { UserInfo } from "../../packages/server/src/apiserver/request/user-info.ts";
import { podBody, sandboxBody } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { attacks, container, podSpec, uses } from "./sandbox-user-cases.ts";
import { SecuredApi } from "./secured-api.ts";

const boxes = "/apis/agents.x-k8s.io/v1beta1/namespaces/red/sandboxes";
const oldBoxes = "/apis/agents.x-k8s.io/v1alpha1/namespaces/red/sandboxes";
const claims = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/red/sandboxclaims";
const merge = "application/merge-patch+json";
const apply = "application/apply-patch+yaml";

let api: SecuredApi;
let user: UserInfo;
let serial = 0;
let name = "";
let box = "";
let oldBox = "";

beforeAll(async () => {
  api = await SecuredApi.open();
  user = await api.tenant("red", "sandbox-user");
});

afterAll(() => api[Symbol.asyncDispose]());

beforeEach(async () => {
  name = `box-${serial++}`;
  box = `${boxes}/${name}`;
  oldBox = `${oldBoxes}/${name}`;
  await api.made(boxes, sandboxBody(name));
});

async function patches(body: object, as = user, path = box): Promise<number> {
  return (await api.server.call("PATCH", path, { body, type: merge, user: as })).status;
}

test.each(Object.entries(attacks))("sandbox-user: cannot set %s by a patch", async (_title, body) => {
  expect(await patches(body)).toBe(403);
});

test("sandbox-user: cannot set a service account by a patch through the older version", async () => {
  expect(await patches(podSpec({ serviceAccountName: "admin" }), user, oldBox)).toBe(403);
});

test("sandbox-user: cannot set a service account by a JSON patch", async () => {
  const body = [{ op: "add", path: "/spec/podTemplate/spec/serviceAccountName", value: "admin" }];
  const answer = await api.server.call("PATCH", box, { body, type: "application/json-patch+json", user });
  expect(answer.status).toBe(403);
});

test("sandbox-user: cannot set a service account by applying", async () => {
  const podTemplate = { spec: { serviceAccountName: "admin", containers: [container] } };
  const body = sandboxBody(name, { podTemplate });
  const path = `${box}?fieldManager=m&force=true`;
  expect((await api.server.call("PATCH", path, { body, type: apply, user })).status).toBe(403);
});

test("sandbox-user: applying does not create what it may not create", async () => {
  const path = `${boxes}/fresh?fieldManager=m`;
  const refused = await api.server.call("PATCH", path, { body: sandboxBody("fresh"), type: apply, user });
  expect(refused.status).toBe(403);
  expect(refused.body["message"]).toContain('cannot create resource "sandboxes"');
});

test("authorization: a PUT that would create a Lease needs the right to create", async () => {
  const path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/other";
  const rule = { apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["update"] };
  await api.made("/apis/rbac.authorization.k8s.io/v1/clusterroles", {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRole",
    metadata: { name: "lease-updater" },
    rules: [rule],
  });
  const updater = await api.tenant("kube-node-lease", "lease-updater");
  const body = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name: "other" }, spec: {} };
  expect((await api.server.call("PUT", path, { body, user: updater })).status).toBe(403);
});

test("sandbox-user: the refusal names the field and the right that is missing", async () => {
  const { body } = await api.server.call("PATCH", box, {
    body: podSpec({ serviceAccountName: "admin" }),
    type: merge,
    user,
  });
  expect(body["message"]).toBe(
    `sandboxes.agents.x-k8s.io "${name}" is forbidden: without "update" a patch may change how a Sandbox runs only, not spec.podTemplate`,
  );
});

test.each(Object.entries(uses))("sandbox-user: may %s", async (_title, body) => {
  expect(await patches(body)).toBe(200);
});

test("sandbox-user: may suspend and resume through the older version", async () => {
  expect(await patches({ spec: { replicas: 0 } }, user, oldBox)).toBe(200);
  expect(await patches({ spec: { replicas: 1 } }, user, oldBox)).toBe(200);
});

test("sandbox-user: each use has a verb of its own", async () => {
  await api.made("/apis/rbac.authorization.k8s.io/v1/clusterroles", {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRole",
    metadata: { name: "waker" },
    rules: [{ apiGroups: ["agents.x-k8s.io"], resources: ["sandboxes"], verbs: ["patch", "resume"] }],
  });
  const waker = await api.tenant("red", "waker");
  expect(await patches({ spec: { operatingMode: "Suspended" } }, waker)).toBe(403);
  expect(await patches({ spec: { shutdownTime: "2026-04-01T00:00:00Z" } }, waker)).toBe(403);
  expect(await patches({ spec: { operatingMode: "Suspended" } })).toBe(200);
  expect(await patches({ spec: { operatingMode: "Running" } }, waker)).toBe(200);
});

test("sandbox-user: claims, and deletes what it claimed", async () => {
  const claim = {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxClaim",
    metadata: { name: "mine" },
    spec: { warmPoolRef: { name: "pool" } },
  };
  const post = (path: string, body: object) => api.server.call("POST", path, { body, user });
  expect((await post(claims, claim)).status).toBe(201);
  expect((await api.server.call("DELETE", `${claims}/mine`, { user })).status).toBe(200);
  expect((await post(boxes, sandboxBody("whole"))).status).toBe(403);
  expect((await post("/api/v1/namespaces/red/pods", podBody("pod"))).status).toBe(403);
  expect((await api.server.call("DELETE", box, { user })).status).toBe(403);
});

test.each([
  ["the router", () => componentUser("sandbox-router")],
  ["a node", () => nodeUser("n1")],
])("sandbox-user: %s reports activity and changes nothing else of a Sandbox", async (_title, as) => {
  expect(await patches(uses["report activity"] as object, as())).toBe(200);
  expect(await patches(podSpec({ serviceAccountName: "admin" }), as())).toBe(403);
  expect(await patches({ spec: { operatingMode: "Suspended" } }, as())).toBe(403);
});

test("sandbox-user: who may update changes everything", async () => {
  const editor = await api.tenant("red", "edit");
  expect(await patches(podSpec({ serviceAccountName: "admin" }), editor)).toBe(200);
  expect(await patches(podSpec({ serviceAccountName: "admin" }), componentUser("agent-sandbox-controller"))).toBe(200);
});

const statuses: Readonly<Record<string, string>> = {
  sandboxes: `${boxes}/any/status`,
  sandboxclaims: `${claims}/any/status`,
  sandboxtemplates: claims.replace("sandboxclaims", "sandboxtemplates/any/status"),
  sandboxwarmpools: claims.replace("sandboxclaims", "sandboxwarmpools/any/status"),
  sandboxclaimaliases: "/apis/agents.x-k8s.io/v1alpha1/namespaces/red/sandboxclaimaliases/any/status",
  sandboxsnapshots: "/apis/agent-sandbox.dev/v1alpha1/namespaces/red/sandboxsnapshots/any/status",
  pods: "/api/v1/namespaces/red/pods/any/status",
  services: "/api/v1/namespaces/red/services/any/status",
  persistentvolumeclaims: "/api/v1/namespaces/red/persistentvolumeclaims/any/status",
};

test.each(Object.entries(statuses))("authorization: the status of %s is its controller's", async (_kind, path) => {
  for (const role of ["sandbox-user", "edit", "admin"]) {
    const tenant = await api.tenant("red", role, `${role}-${_kind}`);
    const change = { body: { status: {} }, type: merge, user: tenant };
    expect((await api.server.call("PATCH", path, change)).status, role).toBe(403);
  }
});
