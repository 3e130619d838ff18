import { afterAll, beforeAll, expect, test } from "vitest";
import { componentUser, nodeUser } from "../../packages/server/src/apiserver/auth/components.ts";
import type { UserInfo } from "../../packages/server/src/apiserver/request/user-info.ts";
import { SecuredApi } from "./secured-api.ts";

const archives = "/apis/agent-sandbox.dev/v1alpha1/namespaces/red/sandboxarchives";
const merge = "application/merge-patch+json";
const archiveID = "0123456789abcdef0123456789abcdef";
const own = "agent-sandbox.dev";
const all = { apiGroups: [own], resources: ["sandboxarchives"], verbs: ["*"] };
const boxes = (...verbs: string[]): object => ({ apiGroups: ["agents.x-k8s.io"], resources: ["sandboxes"], verbs });
const snapshots = { apiGroups: [own], resources: ["sandboxsnapshots"], verbs: ["create"] };

let api: SecuredApi;
const users = new Map<string, UserInfo>();

beforeAll(async () => {
  api = await SecuredApi.open();
  const role = async (name: string, rules: object[]): Promise<void> => {
    await api.made("/apis/rbac.authorization.k8s.io/v1/clusterroles", {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name },
      rules,
    });
    users.set(name, await api.tenant("red", name));
  };
  await role("archives-alone", [{ ...all, verbs: ["create", "get", "update", "patch"] }]);
  await role("without-delete", [all, snapshots]);
  await role("without-memory", [all, boxes("delete")]);
  await role("archiver", [{ ...all, verbs: ["create", "update", "patch"] }, boxes("delete"), snapshots]);
  await role("maker", [{ ...all, verbs: ["update", "patch"] }, boxes("create")]);
  await role("caller", [{ ...all, verbs: ["patch", "recall"] }]);
});

afterAll(() => api[Symbol.asyncDispose]());

const archive = (name: string, spec: object = {}): object => ({
  apiVersion: "agent-sandbox.dev/v1alpha1",
  kind: "SandboxArchive",
  metadata: { name },
  spec,
});
const userOf = (name: string): UserInfo => users.get(name) ?? { username: name, groups: [] };
const post = async (name: string, user: string, spec: object = {}): Promise<number> =>
  (await api.server.call("POST", archives, { body: archive(name, spec), user: userOf(user) })).status;
const patch = async (name: string, body: object, user: UserInfo, sub = ""): Promise<number> =>
  (await api.server.call("PATCH", `${archives}/${name}${sub}`, { body, type: merge, user })).status;

test("SandboxArchive: who makes one may delete the Sandbox and take snapshots", async () => {
  expect(await post("a", "archives-alone")).toBe(403);
  expect(await post("a", "without-delete")).toBe(403);
  expect(await post("a", "without-memory")).toBe(403);
  expect(await post("a", "archiver")).toBe(201);
});

test("SandboxArchive: who recalls one may make Sandboxes, or holds the verb for it", async () => {
  await api.made(archives, archive("b"));
  const recall = { spec: { recall: true } };
  expect(await post("c", "archiver", { recall: true })).toBe(403);
  expect(await patch("b", recall, userOf("archives-alone"))).toBe(403);
  expect(await patch("b", recall, userOf("archiver"))).toBe(403);
  expect(await patch("b", recall, userOf("caller"))).toBe(200);
  await api.made(archives, archive("d"));
  expect(await patch("d", recall, userOf("maker"))).toBe(200);
});

test("SandboxArchive: without update a patch recalls and does nothing else", async () => {
  await api.made(archives, archive("e"));
  const caller = userOf("caller");
  expect(await patch("e", { metadata: { finalizers: ["x.y/z"] } }, caller)).toBe(403);
  expect(await patch("e", { metadata: { labels: { a: "b" } } }, caller)).toBe(403);
  expect(await patch("e", { spec: { recall: true }, metadata: { annotations: { a: "b" } } }, caller)).toBe(403);
  expect(await patch("e", { spec: { recall: true } }, componentUser("sandbox-router"))).toBe(200);
});

test("SandboxArchive: what it takes over of the index is said once", async () => {
  await api.made(archives, archive("f"));
  expect(await patch("f", { spec: { archiveID } }, userOf("archiver"))).toBe(422);
  await api.made(archives, archive("g", { archiveID }));
  expect(await patch("g", { spec: { archiveID: "f".repeat(32) } }, userOf("archiver"))).toBe(422);
});

test("SandboxArchive: a node says what it has stored, and not which Sandbox is deleted or made", async () => {
  await api.made(archives, archive("h"));
  const status = (fields: object) => patch("h", { status: fields }, nodeUser("n1"), "/status");
  expect(await status({ nodeName: "n2" })).toBe(403);
  expect(await status({ sandbox: { kind: "Sandbox" } })).toBe(403);
  expect(await status({ nodeName: "n1" })).toBe(200);
  expect(await status({ storedBytes: 1, archivedAt: "2026-01-01T00:00:00Z" })).toBe(200);
  for (const fields of [{ archiveID }, { podUID: "p" }, { leftAt: "2026-01-01T00:00:00Z" }, { sandboxUID: "u" }])
    expect(await status(fields)).toBe(403);
  expect(await patch("h", { status: { storedBytes: 2 } }, nodeUser("n2"), "/status")).toBe(403);
  expect(await patch("h", { spec: { recall: true } }, nodeUser("n1"))).toBe(403);
});

test("SandboxArchive: a node tells what the index has of one that lost its object, once", async () => {
  await api.made(archives, archive("i", { archiveID }));
  const found = { nodeName: "n1", sandboxUID: "u", sandbox: { kind: "Sandbox" }, archivedAt: "2026-01-01T00:00:00Z" };
  expect(await patch("i", { status: found }, nodeUser("n1"), "/status")).toBe(200);
  expect(await patch("i", { status: { sandbox: { kind: "Other" } } }, nodeUser("n1"), "/status")).toBe(403);
});
