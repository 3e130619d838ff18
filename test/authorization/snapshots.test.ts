import { afterAll, beforeAll, expect, test } from "vitest";
import { componentUser, nodeUser } from "../../packages/server/src/apiserver/auth/components.ts";
import type { UserInfo } from "../../packages/server/src/apiserver/request/user-info.ts";
import { sandboxBody } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { SecuredApi } from "./secured-api.ts";

const boxes = "/apis/agents.x-k8s.io/v1beta1/namespaces/red/sandboxes";
const oldBoxes = "/apis/agents.x-k8s.io/v1alpha1/namespaces/red/sandboxes";
const templates = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/red/sandboxtemplates";
const snapshots = "/apis/agent-sandbox.dev/v1alpha1/namespaces/red/sandboxsnapshots";
const merge = "application/merge-patch+json";
const restoreFrom = { snapshotName: "secret" };
const podTemplate = { spec: { containers: [{ name: "main", image: "busybox" }] } };

let api: SecuredApi;
let maker: UserInfo;
let reader: UserInfo;

beforeAll(async () => {
  api = await SecuredApi.open();
  const role = async (name: string, rules: object[]): Promise<UserInfo> => {
    await api.made("/apis/rbac.authorization.k8s.io/v1/clusterroles", {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name },
      rules,
    });
    return api.tenant("red", name);
  };
  const make = [
    { apiGroups: ["agents.x-k8s.io"], resources: ["sandboxes"], verbs: ["*"] },
    { apiGroups: ["extensions.agents.x-k8s.io"], resources: ["sandboxtemplates"], verbs: ["*"] },
  ];
  maker = await role("maker", make);
  const get = { apiGroups: ["agent-sandbox.dev"], resources: ["sandboxsnapshots"], verbs: ["get"] };
  reader = await role("reader", [...make, { ...get, resourceNames: ["secret"] }]);
});

afterAll(() => api[Symbol.asyncDispose]());

const template = (name: string, spec: object = {}): object => ({
  apiVersion: "extensions.agents.x-k8s.io/v1beta1",
  kind: "SandboxTemplate",
  metadata: { name },
  spec: { podTemplate, ...spec },
});
const snapshot = (name: string): object => ({
  apiVersion: "agent-sandbox.dev/v1alpha1",
  kind: "SandboxSnapshot",
  metadata: { name },
  spec: { sandboxName: "source" },
});

test("restoreFrom: who may not get the snapshot starts nothing from it", async () => {
  const post = async (path: string, body: object, user: UserInfo) => api.server.call("POST", path, { body, user });
  const refused = await post(boxes, sandboxBody("a", { podTemplate, restoreFrom }), maker);
  expect(refused.status).toBe(403);
  expect(refused.body["message"]).toContain('SandboxSnapshot "secret", which needs the right to "get"');
  const old = { ...sandboxBody("a", { podTemplate, restoreFrom }), apiVersion: "agents.x-k8s.io/v1alpha1" };
  expect((await post(oldBoxes, old, maker)).status).toBe(403);
  expect((await post(templates, template("t", { restoreFrom }), maker)).status).toBe(403);
  expect((await post(boxes, sandboxBody("a", { podTemplate }), maker)).status).toBe(201);
});

test("restoreFrom: the right to get one snapshot is the right to start from that one", async () => {
  const post = async (name: string, snapshotName: string) =>
    api.server.call("POST", boxes, {
      body: sandboxBody(name, { podTemplate, restoreFrom: { snapshotName } }),
      user: reader,
    });
  expect((await post("b", "secret")).status).toBe(201);
  expect((await post("c", "other")).status).toBe(403);
});

test("restoreFrom: a template that names a snapshot is edited without the right, and named anew only with it", async () => {
  await api.made(templates, template("kept", { restoreFrom }));
  const edit = async (name: string, spec: object, user: UserInfo) =>
    (await api.server.call("PATCH", `${templates}/${name}`, { body: { spec }, type: merge, user })).status;
  expect(await edit("kept", { wakePolicy: "Never" }, maker)).toBe(200);
  expect(await edit("kept", { restoreFrom: { snapshotName: "other" } }, maker)).toBe(403);
  await api.made(templates, template("plain"));
  expect(await edit("plain", { restoreFrom }, maker)).toBe(403);
  expect(await edit("plain", { restoreFrom }, reader)).toBe(200);
});

test("restoreFrom: the controller makes Sandboxes of a template that names a snapshot", async () => {
  const body = sandboxBody("member", { podTemplate, restoreFrom });
  const answer = await api.server.call("POST", boxes, { body, user: componentUser("agent-sandbox-controller") });
  expect(answer.status).toBe(201);
});

test("SandboxSnapshot: a node takes it on and ends it, and no other node writes it", async () => {
  await api.made(snapshots, snapshot("taken"));
  const write = async (status: object, node: string) =>
    (
      await api.server.call("PATCH", `${snapshots}/taken/status`, {
        body: { status },
        type: merge,
        user: nodeUser(node),
      })
    ).status;
  expect(await write({ nodeName: "n1", sandboxUID: "u" }, "n1")).toBe(200);
  expect(await write({ sizeBytes: 1 }, "n2")).toBe(403);
  expect(await write({ sizeBytes: 1 }, "n1")).toBe(200);
  const spec = await api.server.call("PATCH", `${snapshots}/taken`, {
    body: { spec: { ttlSecondsAfterCreation: 1 } },
    type: merge,
    user: nodeUser("n1"),
  });
  expect(spec.status).toBe(403);
});

test("SandboxSnapshot: a ResourceQuota counts them", async () => {
  const name = "count/sandboxsnapshots.agent-sandbox.dev";
  await api.tenant("blue", "edit");
  await api.made("/api/v1/namespaces/blue/resourcequotas", {
    apiVersion: "v1",
    kind: "ResourceQuota",
    metadata: { name: "q" },
    spec: { hard: { [name]: "1" } },
  });
  const blue = snapshots.replace("/red/", "/blue/");
  await api.made(blue, snapshot("one"));
  const refused = await api.server.call("POST", blue, { body: snapshot("two") });
  expect(refused.status).toBe(403);
  expect(refused.body["message"]).toContain(
    `exceeded quota: q, requested: ${name}=1, used: ${name}=1, limited: ${name}=1`,
  );
});
