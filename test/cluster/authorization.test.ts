import { spawnSync } from "node:child_process";
import { httpTransport, type Transport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sandboxBody } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { attacks, uses } from "../authorization/sandbox-user-cases.ts";
import { ApiCall, patchTypes } from "../conformance/api-call.ts";
import { type Cluster, openCluster } from "./cluster.ts";
import { programPath } from "./programs.ts";

const rbac = "rbac.authorization.k8s.io";
const namespace = "red";
const boxes = `/apis/agents.x-k8s.io/v1beta1/namespaces/${namespace}/sandboxes`;

let cluster: Cluster;
let transport: Transport;
let api: ApiCall;

beforeAll(async () => {
  cluster = await openCluster({ controllerManager: false, scheduler: false });
  transport = httpTransport(cluster.admin);
  api = new ApiCall(transport);
  const args = ["--kubeconfig", cluster.kubeconfig, "apply", "--server-side", "-k", "deploy/kubernetes"];
  const applied = spawnSync(programPath("kubectl"), args, { cwd: rootDir, encoding: "utf8", timeout: 60_000 });
  expect(applied.status, applied.stderr).toBe(0);
  await created("/api/v1/namespaces", { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
  for (const role of ["sandbox-user", "edit"]) await bind(role);
}, 180_000);

afterAll(async () => {
  await transport?.close();
  await cluster?.[Symbol.asyncDispose]();
});

async function created(path: string, body: object): Promise<void> {
  const answer = await api.call("POST", path, { body });
  expect(answer.status, answer.text).toBe(201);
}

/** The user of a role has the role's name. Roles that others go into stay empty without a controller: their parts are bound. */
async function bind(role: string): Promise<void> {
  for (const part of await partsOf(role))
    await created(`/apis/${rbac}/v1/namespaces/${namespace}/rolebindings`, {
      apiVersion: `${rbac}/v1`,
      kind: "RoleBinding",
      metadata: { name: `${role}-${part.replaceAll(":", "-")}` },
      roleRef: { apiGroup: rbac, kind: "ClusterRole", name: part },
      subjects: [{ apiGroup: rbac, kind: "User", name: role }],
    });
}

async function partsOf(role: string): Promise<string[]> {
  const { body } = await api.call("GET", `/apis/${rbac}/v1/clusterroles`);
  const all = body.items as { metadata: { name: string; labels?: Record<string, string> } }[];
  const parts = (name: string): string[] => [
    name,
    ...all
      .filter(({ metadata }) => metadata.labels?.[`${rbac}/aggregate-to-${name}`] === "true")
      .flatMap(({ metadata }) => parts(metadata.name)),
  ];
  return [...new Set(parts(role))];
}

let serial = 0;

async function patches(as: string, body: object): Promise<{ status: number; text: string }> {
  const name = `box-${serial++}`;
  await created(boxes, sandboxBody(name));
  return api.call("PATCH", `${boxes}/${name}`, { as, type: patchTypes.merge, body });
}

test("sandbox-user on a cluster: the policy takes effect", async () => {
  await expect
    .poll(async () => (await patches("sandbox-user", attacks["another image"] as object)).status, { timeout: 30_000 })
    .toBe(403);
});

test.each(Object.entries(attacks))("sandbox-user on a cluster: cannot set %s by a patch", async (_title, body) => {
  const answer = await patches("sandbox-user", body);
  expect(answer.status, answer.text).toBe(403);
});

test.each(Object.entries(uses))("sandbox-user on a cluster: may %s", async (_title, body) => {
  const answer = await patches("sandbox-user", body);
  expect(answer.status, answer.text).toBe(200);
});

test("sandbox-user on a cluster: who may update changes everything", async () => {
  const answer = await patches("edit", attacks["another service account"] as object);
  expect(answer.status, answer.text).toBe(200);
});
