import { spawnSync } from "node:child_process";
import { httpTransport, type Transport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sandboxBody } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { type Ask, isDeclared, type Subject, subjects } from "../authorization/declared-rights.ts";
import { cellsOf, isNamed, routelessRights, routesOf } from "../authorization/routes.ts";
import { attacks, uses } from "../authorization/sandbox-user-cases.ts";
import { SecuredApi } from "../authorization/secured-api.ts";
import { ApiCall, patchTypes } from "../conformance/api-call.ts";
import { type Cluster, openCluster } from "./cluster.ts";
import { programPath } from "./programs.ts";

const rbac = "rbac.authorization.k8s.io";
const namespace = "red";
const abroad = "blue";
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
  await created("/api/v1/namespaces", { apiVersion: "v1", kind: "Namespace", metadata: { name: abroad } });
  for (const role of ["view", "edit", "admin", "sandbox-user"]) await bind(role, { user: role, namespace });
  await bind("admin", { user: "stranger", namespace: abroad });
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
async function bind(role: string, to: { user: string; namespace: string }): Promise<void> {
  for (const part of await partsOf(role))
    await created(`/apis/${rbac}/v1/namespaces/${to.namespace}/rolebindings`, {
      apiVersion: `${rbac}/v1`,
      kind: "RoleBinding",
      metadata: { name: `${role}-${part.replaceAll(":", "-")}` },
      roleRef: { apiGroup: rbac, kind: "ClusterRole", name: part },
      subjects: [{ apiGroup: rbac, kind: "User", name: to.user }],
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

interface Right extends Ask {
  readonly version: string;
}

/** The cells of the matrix that the cluster serves too, once for all versions. */
async function sharedRights(): Promise<Right[]> {
  await using embedded = await SecuredApi.open();
  const cells = cellsOf(routesOf(embedded.server.api.parts.registry));
  const served = new Set<string>();
  for (const root of new Set(cells.map(rootOf))) {
    const { body } = await api.call("GET", root);
    const resources = (body?.resources ?? []) as { name: string; verbs: string[] }[];
    for (const { name, verbs } of resources) for (const verb of verbs) served.add(`${root} ${name} ${verb}`);
  }
  const shared = cells.filter((cell) => served.has(`${rootOf(cell)} ${cell.resource} ${cell.verb}`));
  const scopes = ["own", "foreign", "cluster"] as const;
  const routeless = routelessRights.flatMap((right) => scopes.map((scope) => ({ ...right, version: "v1", scope })));
  return [...new Map([...shared, ...routeless].map((right) => [nameOf(right), right])).values()];
}

function rootOf({ group, version }: { group: string; version: string }): string {
  return group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
}

function nameOf({ group, resource, verb, scope }: Ask): string {
  return `${verb} ${resource}${group === "" ? "" : `.${group}`} ${scope}`;
}

async function isAllowed(subject: Subject, right: Right): Promise<boolean> {
  const [resource = "", subresource = ""] = right.resource.split("/");
  const isHome = (subject === "stranger") !== (right.scope === "own");
  const place = right.scope === "cluster" ? "" : isHome ? namespace : abroad;
  const isNamespace = right.group === "" && resource === "namespaces";
  const name = isNamespace ? place : isNamed(right.verb, right.resource) ? "thing" : "";
  const { group, version, verb } = right;
  const isAnonymous = subject === "anonymous";
  const spec = {
    user: isAnonymous ? "system:anonymous" : subject,
    groups: [isAnonymous ? "system:unauthenticated" : "system:authenticated"],
    resourceAttributes: { group, version, resource, subresource, verb, namespace: place, name },
  };
  const body = { apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec };
  const answer = await api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", { body });
  expect(answer.status, answer.text).toBe(201);
  return answer.body.status.allowed as boolean;
}

test("authorization matrix on a cluster: its own roles and ours say what the one-machine engine's say", async () => {
  const rights = await sharedRights();
  const differing: string[] = [];
  let checked = 0;
  for (const subject of subjects)
    for (let at = 0; at < rights.length; at += 64)
      await Promise.all(
        rights.slice(at, at + 64).map(async (right) => {
          checked++;
          const isThere = await isAllowed(subject, right);
          if (isThere !== isDeclared(subject, right))
            differing.push(`${subject}: ${nameOf(right)} is ${isThere ? "allowed" : "refused"} on a cluster`);
        }),
      );
  process.stdout.write(`authorization matrix: ${checked} cells compared with a real API server\n`);
  expect(differing).toEqual([]);
});

test("restoreFrom on a cluster: who may not get the snapshot starts nothing from it, and who may does", async () => {
  const ruleOf = (verbs: string[], resources: string[], apiGroup: string) => ({
    apiGroups: [apiGroup],
    resources,
    verbs,
  });
  const make = [
    ruleOf(["create"], ["sandboxes"], "agents.x-k8s.io"),
    ruleOf(["create"], ["sandboxtemplates"], "extensions.agents.x-k8s.io"),
  ];
  const get = ruleOf(["get"], ["sandboxsnapshots"], "agent-sandbox.dev");
  const roles = { maker: make, restorer: [...make, { ...get, resourceNames: ["secret"] }] };
  for (const [name, rules] of Object.entries(roles)) {
    const role = { apiVersion: `${rbac}/v1`, kind: "ClusterRole", metadata: { name }, rules };
    await created(`/apis/${rbac}/v1/clusterroles`, role);
    await bind(name, { user: name, namespace });
  }
  const podTemplate = { spec: { containers: [{ name: "main", image: "busybox" }] } };
  const start = async (as: string, snapshotName: string) => {
    const body = sandboxBody(`box-${serial++}`, { podTemplate, restoreFrom: { snapshotName } });
    return (await api.call("POST", boxes, { as, body })).status;
  };
  await expect.poll(() => start("maker", "secret"), { timeout: 30_000 }).toBe(403);
  expect(await start("restorer", "other")).toBe(403);
  expect(await start("restorer", "secret")).toBe(201);
  const path = `/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/${namespace}/sandboxtemplates`;
  const template = {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxTemplate",
    metadata: { name: "from-snapshot" },
    spec: { podTemplate, restoreFrom: { snapshotName: "secret" } },
  };
  expect((await api.call("POST", path, { as: "maker", body: template })).status).toBe(403);
  expect((await api.call("POST", path, { as: "restorer", body: template })).status).toBe(201);
});

test("archives on a cluster: who makes one may delete the Sandbox and take snapshots, and patch alone recalls", async () => {
  const own = "agent-sandbox.dev";
  const rule = (apiGroup: string, resource: string, ...verbs: string[]) => {
    return { apiGroups: [apiGroup], resources: [resource], verbs };
  };
  const make = [rule(own, "sandboxarchives", "create"), rule("agents.x-k8s.io", "sandboxes", "delete")];
  const roles = {
    leaver: make,
    archiver: [...make, rule(own, "sandboxsnapshots", "create")],
    caller: [rule(own, "sandboxarchives", "patch", "recall")],
    patcher: [rule(own, "sandboxarchives", "patch")],
  };
  for (const [name, rules] of Object.entries(roles)) {
    const role = { apiVersion: `${rbac}/v1`, kind: "ClusterRole", metadata: { name }, rules };
    await created(`/apis/${rbac}/v1/clusterroles`, role);
    await bind(name, { user: name, namespace });
  }
  const path = `/apis/${own}/v1alpha1/namespaces/${namespace}/sandboxarchives`;
  const body = { apiVersion: `${own}/v1alpha1`, kind: "SandboxArchive", metadata: { name: "box" }, spec: {} };
  const post = async (as: string, spec: object = {}) =>
    (await api.call("POST", path, { as, body: { ...body, spec } })).status;
  await expect.poll(() => post("leaver"), { timeout: 30_000 }).toBe(403);
  expect(await post("archiver", { recall: true })).toBe(403);
  expect(await post("archiver")).toBe(201);
  const patch = async (as: string, change: object) =>
    (await api.call("PATCH", `${path}/box`, { as, body: change, type: patchTypes.merge })).status;
  expect(await patch("patcher", { spec: { recall: true } })).toBe(403);
  expect(await patch("caller", { metadata: { labels: { a: "b" } } })).toBe(403);
  expect(await patch("caller", { spec: { recall: true } })).toBe(200);
});
