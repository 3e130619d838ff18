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
