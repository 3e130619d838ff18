import type http from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ListenerTrust, User } from "../../packages/server/src/router/access/caller.ts";
import type { AddressingForm } from "../../packages/server/src/router/addressing/target.ts";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { isDeclared, type Subject, subjects } from "../authorization/declared-rights.ts";
import { type Answer, call } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { openUpstream } from "./upstream.ts";

const home = "red";
const abroad = "blue";
const rbac = "rbac.authorization.k8s.io";
/** What the listener for callers without credentials is open to. */
const insecureNamespaces = [home];

let world: RouterWorld;
let router: OpenedRouter;
let checked = 0;
const tokens = new Map<Subject, string>();
const ports = new Map<string, number>();

beforeAll(async () => {
  world = await RouterWorld.open();
  router = await world.router({
    access: { mode: "access-review", insecureNamespaces },
    linkSecret: Buffer.alloc(32, 5),
  });
  for (const namespace of [home, abroad]) {
    const address = await world.sandbox(router, "box", { namespace });
    await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end(`box of ${namespace}`));
  }
  for (const subject of subjects) {
    if (subject !== "anonymous") tokens.set(subject, await openSubject(subject));
    for (const [kind, trustOf] of Object.entries(doors)) {
      const port = await router.listen({ host: "127.0.0.1", port: 0 }, trustOf(subject));
      ports.set(`${kind} ${subject}`, port);
    }
  }
});

afterAll(async () => {
  process.stdout.write(`router matrix: ${checked} cells checked by requests\n`);
  await world[Symbol.asyncDispose]();
});

const homeOf = (subject: Subject): string => (subject === "stranger" ? abroad : home);

/** An account with the role of its name, the stranger with `admin`, each in one namespace; resolves with its token. */
async function openSubject(subject: Subject): Promise<string> {
  const namespace = homeOf(subject);
  const token = await world.token(namespace, subject);
  await world.admin.raw({
    method: "POST",
    path: `/apis/${rbac}/v1/namespaces/${namespace}/rolebindings`,
    body: {
      apiVersion: `${rbac}/v1`,
      kind: "RoleBinding",
      metadata: { name: subject },
      roleRef: { apiGroup: rbac, kind: "ClusterRole", name: subject === "stranger" ? "admin" : subject },
      subjects: [{ kind: "ServiceAccount", name: subject, namespace }],
    },
  });
  return token;
}

function userOf(subject: Subject): User {
  if (subject === "anonymous") return { username: "system:anonymous", groups: ["system:unauthenticated"] };
  return { username: `system:serviceaccount:${homeOf(subject)}:${subject}`, groups: ["system:authenticated"] };
}

/** One listener of each kind for each subject. A kind that is added to the router needs a row here to compile. */
const doors: Readonly<Record<ListenerTrust["kind"], (subject: Subject) => ListenerTrust>> = {
  credentials: () => ({ kind: "credentials" }),
  tunnel: (subject) => ({ kind: "tunnel", user: userOf(subject) }),
  loopback: () => ({ kind: "loopback" }),
  insecure: () => ({ kind: "insecure" }),
};

interface Asked {
  readonly path: string;
  readonly headers: http.OutgoingHttpHeaders;
}

/** One way of naming a sandbox each. A form that is added to the router needs a row here to compile. */
const naming: Readonly<Record<AddressingForm, (namespace: string, name: string) => Asked>> = {
  header: (namespace, name) => ({
    path: "/",
    headers: { "X-Sandbox-ID": name, "X-Sandbox-Namespace": namespace },
  }),
  host: (namespace, name) => ({ path: "/", headers: { Host: `8888-${name}.${namespace}.sandbox.localhost` } }),
  path: (namespace, name) => ({ path: `/sandboxes/${namespace}/${name}/8888/`, headers: {} }),
};

const exchanges: Readonly<Record<string, http.OutgoingHttpHeaders>> = {
  request: {},
  upgrade: {
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": Buffer.alloc(16, 7).toString("base64"),
  },
};

const bearer = (subject: Subject): http.OutgoingHttpHeaders => {
  const token = tokens.get(subject);
  return token === undefined ? {} : { Authorization: `Bearer ${token}` };
};

/** Whether the roles let him connect; the router adds nothing to that and takes nothing away. */
function mayConnect(subject: Subject, namespace: string): boolean {
  const scope = namespace === homeOf(subject) ? "own" : "foreign";
  return isDeclared(subject, { group: "agents.x-k8s.io", resource: "sandboxes/connect", verb: "create", scope });
}

/** The sandboxes there are and two that are not. */
const targets = [home, abroad].flatMap((namespace) => ["box", "absent"].map((name) => ({ namespace, name })));

function expectAnswer(answer: Answer, isAllowed: boolean, { namespace, name }: (typeof targets)[number]): void {
  checked++;
  const { status, text } = answer;
  if (!isAllowed) expect([401, 403], text).toContain(status);
  else if (name === "absent") expect(status, text).toBe(404);
  else expect({ status, text }).toEqual({ status: 200, text: `box of ${namespace}` });
}

const ways = Object.keys(naming).flatMap((form) =>
  Object.keys(exchanges).flatMap((exchange) => Object.keys(doors).map((door) => ({ form, exchange, door }))),
) as { form: AddressingForm; exchange: string; door: ListenerTrust["kind"] }[];

test.each(ways)("router matrix: $exchange by $form at the $door listener", async ({ form, exchange, door }) => {
  for (const subject of subjects)
    for (const target of targets) {
      const { path, headers } = naming[form](target.namespace, target.name);
      // A tunnel and the insecure listener know whom they serve; there a credential is not looked at.
      const proof = door === "credentials" || door === "loopback" ? bearer(subject) : {};
      const port = ports.get(`${door} ${subject}`) ?? 0;
      const answer = await call(port, path, { headers: { ...headers, ...exchanges[exchange], ...proof } });
      const isAllowed =
        door === "insecure" ? insecureNamespaces.includes(target.namespace) : mayConnect(subject, target.namespace);
      expectAnswer(answer, isAllowed, target);
    }
});

async function linkBy(subject: Subject, target: (typeof targets)[number]): Promise<Answer> {
  const port = ports.get(`credentials ${subject}`) ?? 0;
  const body = JSON.stringify({ ...target, port: 8888 });
  return call(port, "/_agent-sandbox/links", { method: "POST", body, headers: bearer(subject) });
}

test.each(subjects)("router matrix: %s makes links to what he may connect to", async (subject) => {
  for (const target of targets) {
    const isAllowed = mayConnect(subject, target.namespace);
    // The router waits a second for a sandbox that somebody may connect to and that it has not heard of: once is enough.
    if (isAllowed && target.name === "absent" && subject !== "sandbox-user") continue;
    const { status } = await linkBy(subject, target);
    checked++;
    expect(status).toBe(isAllowed ? (target.name === "box" ? 201 : 404) : subject === "anonymous" ? 401 : 403);
  }
});

const makers = subjects.filter((subject) => subject !== "anonymous" && subject !== "view");

test.each(makers)("router matrix: a link of %s opens its sandbox to anybody, and no other", async (subject) => {
  const own = { namespace: homeOf(subject), name: "box" };
  const made = JSON.parse((await linkBy(subject, own)).text) as { path: string };
  const first = await call(ports.get("credentials anonymous") ?? 0, made.path, {
    headers: { "Sec-Fetch-Site": "same-origin" },
  });
  const Cookie = (first.headers["set-cookie"]?.[0] ?? "").split(";")[0] ?? "";
  expect(Cookie).toContain("agent_sandbox_session=");
  for (const form of Object.keys(naming) as AddressingForm[])
    for (const target of targets) {
      const { path, headers } = naming[form](target.namespace, target.name);
      const isSame = target.namespace === own.namespace && target.name === own.name;
      const port = ports.get("credentials anonymous") ?? 0;
      expectAnswer(await call(port, path, { headers: { ...headers, Cookie } }), isSame, target);
      const bent = await call(port, path + made.path.slice(made.path.indexOf("?")), { headers });
      checked++;
      // A program keeps no cookie and is answered at once.
      if (isSame) expectAnswer(bent, true, target);
      else expect([401, 403]).toContain(bent.status);
    }
  const more = { method: "POST", body: JSON.stringify({ ...own, port: 8888 }), headers: { Cookie } };
  expect((await call(ports.get("credentials anonymous") ?? 0, "/_agent-sandbox/links", more)).status).toBe(403);
});

test("router matrix: of the paths that are the router's own, links are made and health is told", async () => {
  for (const path of ["/healthz", "/_agent-sandbox/", "/_agent-sandbox/anything", "/_agent-sandbox/links"]) {
    checked++;
    const { status } = await call(ports.get("credentials anonymous") ?? 0, path);
    expect(status, path).toBe({ "/healthz": 200, "/_agent-sandbox/links": 405 }[path] ?? 400);
  }
});
