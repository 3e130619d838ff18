import { afterAll, beforeAll, expect, test } from "vitest";
import { anonymousUser } from "../../packages/server/src/apiserver/auth/authenticator.ts";
import type { UserInfo } from "../../packages/server/src/apiserver/request/user-info.ts";
import { podBody, sandboxBody } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { isDeclared, type Subject, subjects } from "./declared-rights.ts";
import { type Cell, cellsOf, isNamed, routelessRights, routesOf } from "./routes.ts";
import { SecuredApi } from "./secured-api.ts";

const home = "red";
const abroad = "blue";

let api: SecuredApi;
let cells: Cell[];
const users = new Map<Subject, UserInfo>();
let checked = 0;

beforeAll(async () => {
  api = await SecuredApi.open();
  for (const role of ["view", "edit", "admin", "sandbox-user"] as const) users.set(role, await api.tenant(home, role));
  users.set("stranger", await api.tenant(abroad, "admin", "stranger"));
  users.set("anonymous", anonymousUser);
  for (const namespace of [home, abroad])
    for (const [path, body] of Object.entries(things)) await api.made(path.replace("*", namespace), body);
  cells = cellsOf(routesOf(api.server.api.parts.registry));
});

afterAll(async () => {
  process.stdout.write(`authorization matrix: ${checked} cells checked by requests\n`);
  await api[Symbol.asyncDispose]();
});

const metadata = { name: "thing" };
const extensions = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/*";

/** Objects that are there, in both namespaces. */
const things: Readonly<Record<string, object>> = {
  "/api/v1/namespaces/*/pods": podBody("thing"),
  "/api/v1/namespaces/*/configmaps": { apiVersion: "v1", kind: "ConfigMap", metadata },
  "/api/v1/namespaces/*/secrets": { apiVersion: "v1", kind: "Secret", metadata },
  "/api/v1/namespaces/*/serviceaccounts": { apiVersion: "v1", kind: "ServiceAccount", metadata },
  "/apis/agents.x-k8s.io/v1beta1/namespaces/*/sandboxes": sandboxBody("thing"),
  [`${extensions}/sandboxclaims`]: {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxClaim",
    metadata,
    spec: { warmPoolRef: { name: "pool" } },
  },
  "/apis/rbac.authorization.k8s.io/v1/namespaces/*/roles": {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "Role",
    metadata,
    rules: [],
  },
};

/** The namespace that a cell is about, as its subject sees it. */
function namespaceOf(subject: Subject, scope: Cell["scope"]): string {
  if (scope === "cluster") return "";
  return (subject === "stranger") === (scope === "own") ? abroad : home;
}

const methods: Readonly<Record<string, string>> = {
  get: "GET",
  list: "GET",
  watch: "GET",
  create: "POST",
  update: "PUT",
  patch: "PATCH",
  delete: "DELETE",
  deletecollection: "DELETE",
};

function pathOf(cell: Cell, namespace: string, name: string): string {
  const { group, version, resource, verb } = cell;
  const root = group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
  const [plural = "", subresource] = resource.split("/");
  const isNamespace = group === "" && plural === "namespaces";
  const place = namespace === "" || isNamespace ? root : `${root}/namespaces/${namespace}`;
  const object = isNamed(verb, resource) ? `/${isNamespace ? namespace : name}` : "";
  return `${place}/${plural}${object}${subresource === undefined ? "" : `/${subresource}`}`;
}

/** Asks for real; nothing is changed, because writes are dry and their bodies empty. */
async function answerTo(subject: Subject, cell: Cell, name: string) {
  const method = methods[cell.verb] ?? "";
  const path = pathOf(cell, namespaceOf(subject, cell.scope), name);
  const query = cell.verb === "watch" ? "watch=true&timeoutSeconds=0" : method === "GET" ? "" : "dryRun=All";
  const stop = new AbortController();
  if (cell.verb === "watch") stop.abort();
  const { status, body, text } = await api.server.call(method, `${path}?${query}`, {
    user: users.get(subject) as UserInfo,
    signal: stop.signal,
    ...(method === "GET" || method === "DELETE" ? {} : { body: {} }),
    ...(method === "PATCH" ? { type: "application/merge-patch+json" } : {}),
  });
  return { status, reason: body["reason"], text };
}

function titleOf(subject: Subject, { group, version, resource, verb, scope }: Cell): string {
  return `${subject}: ${verb} ${resource} ${group}/${version} ${scope}`;
}

/** What the answer to a cell says about the right to it. */
async function judge(subject: Subject, cell: Cell, name: string): Promise<string | undefined> {
  checked++;
  const isExpected = isDeclared(subject, cell);
  const { status, reason, text } = await answerTo(subject, cell, name);
  const isServed = status !== 405 && status < 500 && !text.startsWith("404 page");
  if (isExpected && status !== 403 && status !== 401 && isServed) return undefined;
  if (!isExpected && status === 403 && reason === "Forbidden") return undefined;
  return `${titleOf(subject, cell)} ${name}: ${isExpected ? "allowed" : "refused"} by declaration, answered ${status} ${text.slice(0, 200)}`;
}

test.each(subjects)("authorization matrix: every verb of every resource answers %s as declared", async (subject) => {
  const wrong: string[] = [];
  for (const cell of cells) wrong.push((await judge(subject, cell, "absent")) ?? "");
  expect(wrong.filter((line) => line !== "")).toEqual([]);
});

test.each(subjects)("authorization matrix: what is there and what is not are refused to %s alike", async (subject) => {
  const names = (path: string) => path.split("/").at(-1);
  const kinds = new Set(Object.keys(things).map(names));
  const foreign = cells.filter(
    ({ resource, verb, scope }) =>
      scope === "foreign" && isNamed(verb, resource) && kinds.has(resource.split("/")[0] ?? ""),
  );
  expect(foreign.length).toBeGreaterThan(30);
  for (const cell of foreign) {
    const there = await answerTo(subject, cell, "thing");
    const absent = await answerTo(subject, cell, "absent");
    checked++;
    expect(there.status, titleOf(subject, cell)).toBe(403);
    expect(there.text.replaceAll("thing", "absent"), titleOf(subject, cell)).toBe(absent.text);
  }
});

test.each(subjects)("authorization matrix: rights without a route are %s's as declared", async (subject) => {
  for (const right of routelessRights)
    for (const scope of ["own", "foreign", "cluster"] as const) {
      const [resource = "", subresource = ""] = right.resource.split("/");
      const { group, verb } = right;
      const user = users.get(subject) as UserInfo;
      const attributes = { group, verb, resource, subresource, namespace: namespaceOf(subject, scope), name: "thing" };
      const { verdict } = api.server.api.parts.authorizer.authorize(
        { kind: "resource", version: "v1", ...attributes },
        user,
      );
      checked++;
      expect(verdict === "allow", `${subject} ${verb} ${right.resource} ${scope}`).toBe(
        isDeclared(subject, { ...right, scope }),
      );
    }
});

/** Who may read each document; no other user may read anything of this form. */
const documents: Readonly<Record<string, readonly Subject[] | "everybody">> = {
  "/healthz": "everybody",
  "/livez": "everybody",
  "/livez/ping": "everybody",
  "/readyz": "everybody",
  "/version": "everybody",
  "/api": subjects.filter((subject) => subject !== "anonymous"),
  "/apis": subjects.filter((subject) => subject !== "anonymous"),
  "/apis/agents.x-k8s.io": subjects.filter((subject) => subject !== "anonymous"),
  "/apis/agents.x-k8s.io/v1beta1": subjects.filter((subject) => subject !== "anonymous"),
  "/openapi/v2": subjects.filter((subject) => subject !== "anonymous"),
  "/openapi/v3": subjects.filter((subject) => subject !== "anonymous"),
  // Every subject but the anonymous one is a service account here.
  "/.well-known/openid-configuration": subjects.filter((subject) => subject !== "anonymous"),
  "/openid/v1/jwks": subjects.filter((subject) => subject !== "anonymous"),
  "/": [],
  "/metrics": [],
  "/logs": [],
  "/debug/pprof": [],
};

test.each(Object.entries(documents))("authorization matrix: %s is read by whom it is for", async (path, readers) => {
  for (const subject of subjects) {
    checked++;
    const { status } = await api.server.call("GET", path, { user: users.get(subject) as UserInfo });
    const isReader = readers === "everybody" || readers.includes(subject);
    expect(status === 403, `${subject} ${path} ${status}`).toBe(!isReader);
  }
});

/** Spellings of another namespace's Secret and of its Secrets: none may be read as something that is allowed. */
const spellings = [
  "/api/v1/namespaces/blue/secrets/thing",
  "/api/v1/namespaces/blue/secrets/thing/",
  "/api/v1/namespaces/%62lue/secrets/thing",
  "/api/v1/namespaces/blue/%73ecrets/thing",
  "/api/v1//namespaces/blue/secrets/thing",
  "/api/v1/namespaces//blue/secrets/thing",
  "/api/v1/namespaces/red/../blue/secrets/thing",
  "/api/v1/namespaces/red/%2e%2e/blue/secrets/thing",
  "/api/v1/namespaces/red%2f..%2fblue/secrets/thing",
  "/api/v1/namespaces/red/configmaps/../../blue/secrets/thing",
  "/api/v1/namespaces/blue/secrets?fieldSelector=metadata.name=thing",
  "/api/v1/namespaces/blue/secrets?fieldSelector=metadata.namespace=red",
  "/api/v1/secrets?fieldSelector=metadata.namespace=red",
  "/api/v1/watch/namespaces/blue/secrets",
  "/api/v1/watch/namespaces/blue/secrets/thing",
  "/api/v1/watch/secrets",
  "/apis//v1/namespaces/blue/secrets/thing",
  "/API/v1/namespaces/blue/secrets/thing",
];

test.each(spellings)("authorization matrix: %s tells an administrator of another namespace nothing", async (path) => {
  checked++;
  const { status, text } = await api.server.call("GET", path, { user: users.get("admin") as UserInfo });
  expect([400, 403, 404]).toContain(status);
  expect(text).not.toContain('"kind":"Secret');
});
