import { asObject } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { adminUser, componentUser } from "../../packages/server/src/apiserver/auth/components.ts";
import type { UserInfo } from "../../packages/server/src/apiserver/request/user-info.ts";
import { podBody, sandboxBody } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { SecuredApi } from "./secured-api.ts";

const pods = "/api/v1/namespaces/red/pods";
const boxes = (namespace: string): string => `/apis/agents.x-k8s.io/v1beta1/namespaces/${namespace}/sandboxes`;
const controller = componentUser("agent-sandbox-controller");
const merge = "application/merge-patch+json";

let api: SecuredApi;
let edit: UserInfo;
let own = "";
let foreign = "";
let serial = 0;

beforeAll(async () => {
  api = await SecuredApi.open();
  edit = await api.tenant("red", "edit");
  await api.tenant("blue", "edit");
  own = await api.made(boxes("red"), sandboxBody("box"));
  foreign = await api.made(boxes("blue"), sandboxBody("box"));
});

afterAll(() => api[Symbol.asyncDispose]());

interface Owner {
  readonly uid: string;
  readonly kind?: string;
  readonly name?: string;
  readonly apiVersion?: string;
  readonly controller?: boolean;
  readonly blockOwnerDeletion?: boolean;
}

function podOwnedBy(owner: Owner) {
  const reference = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name: "box", ...owner };
  return podBody(`pod-${serial++}`, {}, { ownerReferences: [reference] });
}

async function creates(user: UserInfo, owner: Owner): Promise<{ status: number; message: unknown }> {
  const { status, body } = await api.server.call("POST", pods, { body: podOwnedBy(owner), user });
  return { status, message: body["message"] };
}

test("owner references: a tenant cannot make a Sandbox of another namespace the controller of his Pod", async () => {
  const forged = await creates(edit, { uid: foreign, controller: true });
  expect(forged).toMatchObject({
    status: 403,
    message: expect.stringContaining("cannot set controller") as unknown,
  });
});

test("owner references: a tenant cannot make a Sandbox of his own namespace the controller of his Pod", async () => {
  expect((await creates(edit, { uid: own, controller: true })).status).toBe(403);
  expect((await creates(edit, { uid: own, blockOwnerDeletion: true })).status).toBe(403);
});

test("owner references: a plain reference is anybody's, because it only shortens the life of its bearer", async () => {
  expect((await creates(edit, { uid: own })).status).toBe(201);
});

const missing: readonly (readonly [string, Omit<Owner, "uid"> & { uid: () => string }])[] = [
  ["the uid of a Sandbox of another namespace", { uid: () => foreign }],
  ["a uid that nobody has", { uid: () => "nobody" }],
  ["the uid under another name", { uid: () => own, name: "other" }],
  ["the uid under another kind", { uid: () => own, apiVersion: "v1", kind: "ConfigMap" }],
];

test.each(missing)("owner references: %s is not an owner, not even for the administrator", async (_title, owner) => {
  const refused = await creates(adminUser, { ...owner, uid: owner.uid(), controller: true });
  expect(refused).toMatchObject({
    status: 422,
    message: expect.stringMatching(/metadata\.ownerReferences\[0\]: Invalid value: .* there is no \w+ "/) as unknown,
  });
});

test("owner references: a kind that is not served owns nothing", async () => {
  const owner = { uid: own, apiVersion: "apps/v1", kind: "Deployment", controller: true };
  expect((await creates(adminUser, owner)).status).toBe(403);
});

test("owner references: who may not see the owner does not learn whether it exists", async () => {
  const there = await creates(edit, { uid: own, controller: true });
  const absent = await creates(edit, { uid: "nobody", controller: true });
  expect(String(there.message).replace(/pod-\d+/, "")).toBe(String(absent.message).replace(/pod-\d+/, ""));
});

test("owner references: the controller owns what it makes, with the rights of its ClusterRole", async () => {
  expect((await creates(controller, { uid: own, controller: true, blockOwnerDeletion: true })).status).toBe(201);
});

test("owner references: a change of owners needs the right to delete the object", async () => {
  const router = componentUser("sandbox-router");
  const body = { metadata: { ownerReferences: [{ apiVersion: "v1", kind: "ConfigMap", name: "x", uid: "u" }] } };
  const change = { body, type: merge, user: router };
  const refused = await api.server.call("PATCH", `${boxes("red")}/box`, change);
  expect(refused.status).toBe(403);
  expect(refused.body["message"]).toContain("cannot set an ownerRef on a resource you can't delete");
});

test("owner references: a patch that turns a plain reference into a controlling one is checked like a fresh one", async () => {
  const pod = podOwnedBy({ uid: own });
  const { name } = asObject(pod).metadata;
  expect((await api.server.call("POST", pods, { body: pod, user: edit })).status).toBe(201);
  const reference = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name: "box", uid: own, controller: true };
  const turn = { body: { metadata: { ownerReferences: [reference] } }, type: merge, user: edit };
  expect((await api.server.call("PATCH", `${pods}/${name}`, turn)).status).toBe(403);
});

test("owner references: an owner that is gone does not stop other changes of the object", async () => {
  const uid = await api.made(boxes("red"), sandboxBody("passing"));
  const pod = podOwnedBy({ uid, name: "passing", controller: true });
  const { name } = asObject(pod).metadata;
  expect((await api.server.call("POST", pods, { body: pod, user: controller })).status).toBe(201);
  await api.server.call("DELETE", `${boxes("red")}/passing`);
  const label = { body: { metadata: { labels: { a: "b" } } }, type: merge, user: edit };
  expect((await api.server.call("PATCH", `${pods}/${name}`, label)).status).toBe(200);
});
