import { mkdtempSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { duplexPair } from "node:stream";
import { ApiError, type Pod, pods } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openPortForward } from "../../packages/sdk/src/tunnel/port-forward.ts";
import type { UserInfo } from "../../packages/server/src/apiserver/request/user-info.ts";
import type { NodeDialer } from "../../packages/server/src/apiserver/scope/node-dialer.ts";
import { KubeletDialer } from "../../packages/server/src/main/kubelet-dialer.ts";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { documentedTunnelRole, systemNamespace } from "../tenants/tenant-world.ts";
import { call, readAnswer } from "./http-call.ts";
import { RouterWorld, until } from "./router-world.ts";
import { openUpstream } from "./upstream.ts";

const socket = path.join(mkdtempSync(path.join(tmpdir(), "router-tunnel-")), "router.sock");
const tunnels = new KubeletDialer({
  caPem: "",
  credentials: { certificatePem: "", privateKeyPem: "" },
  routerSocket: socket,
});
/** What reached a node: the API server let it through. */
const dialled: string[] = [];
const nodeDialer: NodeDialer = {
  request: () => Promise.reject(new Error("not asked in this test")),
  connect: (nodeName) => {
    dialled.push(nodeName);
    const [near, far] = duplexPair();
    far.once("data", () => far.end("HTTP/1.1 500 Node\r\nContent-Length: 0\r\n\r\n"));
    return Promise.resolve(near);
  },
  connectVirtual: (component, user, signal) => tunnels.connectVirtual(component, user, signal),
};

interface Tenant {
  readonly namespace: string;
  readonly token: string;
  readonly user: UserInfo;
  readonly address: string;
}

let world: RouterWorld;
let router: OpenedRouter;
let port: number;
const tenants = new Map<string, Tenant>();

beforeAll(async () => {
  world = await RouterWorld.open({ nodeDialer });
  router = await world.router({ access: { mode: "access-review" }, linkSecret: Buffer.alloc(32, 5) });
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  await router.listenForTunnels(socket);
  await world.admin.create(pods, routerPod(systemNamespace));
  const path = `/apis/rbac.authorization.k8s.io/v1/namespaces/${systemNamespace}/roles`;
  await world.admin.raw({ method: "POST", path, body: documentedTunnelRole() });
  for (const name of ["red", "blue"]) tenants.set(name, await openTenant(name));
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

function routerPod(namespace: string): Pod {
  const metadata = { namespace, name: "sandbox-router", annotations: { "agent-sandbox.dev/virtual": "router" } };
  return { apiVersion: "v1", kind: "Pod", metadata, spec: { containers: [{ name: "router", image: "router" }] } };
}

/** A namespace with a sandbox, its Pod, and a user who may do everything in it, and in the router's namespace what tunnels need. */
async function openTenant(namespace: string): Promise<Tenant> {
  const token = await world.token(namespace, "user");
  const address = await world.sandbox(router, "box", { namespace });
  await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end(`box of ${namespace}`));
  const spec = { nodeName: `node-of-${namespace}`, containers: [{ name: "main", image: "example.com/app:1" }] };
  await world.admin.create(pods, { apiVersion: "v1", kind: "Pod", metadata: { namespace, name: "box" }, spec });
  await bind(namespace, { kind: "ClusterRole", name: "admin" }, namespace);
  await world.grantConnect(namespace, { kind: "ServiceAccount", name: "user", namespace });
  await bind(systemNamespace, { kind: "Role", name: "sandbox-router-tunnel" }, namespace);
  const username = `system:serviceaccount:${namespace}:user`;
  const groups = ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, "system:authenticated"];
  const user = { username, groups };
  await until(() =>
    world
      .clientFor(user)
      .list(pods, { namespace })
      .then(
        () => true,
        () => false,
      ),
  );
  return { namespace, token, user, address };
}

async function bind(namespace: string, role: { kind: string; name: string }, of: string): Promise<void> {
  const apiGroup = "rbac.authorization.k8s.io";
  await world.admin.raw({
    method: "POST",
    path: `/apis/${apiGroup}/v1/namespaces/${namespace}/rolebindings`,
    body: {
      apiVersion: `${apiGroup}/v1`,
      kind: "RoleBinding",
      metadata: { name: `admin-${of}` },
      roleRef: { apiGroup, ...role },
      subjects: [{ kind: "ServiceAccount", name: "user", namespace: of }],
    },
  });
}

const asked = (of: Tenant) => ({ "X-Sandbox-ID": "box", "X-Sandbox-Namespace": of.namespace });
const bearer = ({ token }: Tenant) => ({ Authorization: `Bearer ${token}` });

/** Every way to a sandbox. Resolves with what the caller got: the sandbox's words, or the refusal. */
/** What a page's script sends with a request; it keeps the cookie that it gets for a link. */
const browser = { headers: { "Sec-Fetch-Site": "same-origin" } };

const forms: Readonly<Record<string, (who: Tenant, whose: Tenant) => Promise<string>>> = {
  header: async (who, whose) => textOf(await call(port, "/", { headers: { ...bearer(who), ...asked(whose) } })),
  host: async (who, whose) =>
    textOf(
      await call(port, "/", { headers: { ...bearer(who), Host: `8888-box.${whose.namespace}.sandbox.localhost` } }),
    ),
  path: async (who, whose) =>
    textOf(await call(port, `/sandboxes/${whose.namespace}/box/8888/`, { headers: bearer(who) })),
  "pod-IP hint": async (who, whose) => {
    // One's own name with the other's address: the address must not win.
    const headers = { ...bearer(who), ...asked(who), "X-Sandbox-Pod-IP": whose.address };
    const text = textOf(await call(port, "/", { headers }));
    return who === whose || !text.includes(who.namespace) ? text : "refused: own sandbox instead";
  },
  "signed link": async (who, whose) => {
    const body = JSON.stringify({ namespace: whose.namespace, name: "box", port: 8888 });
    const made = await call(port, "/_agent-sandbox/links", { method: "POST", body, headers: bearer(who) });
    if (made.status !== 201) return textOf(made);
    const first = await call(port, (JSON.parse(made.text) as { path: string }).path, browser);
    const Cookie = (first.headers["set-cookie"]?.[0] ?? "").split(";")[0];
    return textOf(await call(port, first.headers.location ?? "", { headers: { Cookie } }));
  },
  "another's cookie": async (who, whose) => {
    const body = JSON.stringify({ namespace: who.namespace, name: "box", port: 8888 });
    const made = await call(port, "/_agent-sandbox/links", { method: "POST", body, headers: bearer(who) });
    const first = await call(port, (JSON.parse(made.text) as { path: string }).path, browser);
    const Cookie = (first.headers["set-cookie"]?.[0] ?? "").split(";")[0];
    return textOf(await call(port, `/sandboxes/${whose.namespace}/box/8888/`, { headers: { Cookie } }));
  },
  tunnel: async (who, whose) => {
    const { transport } = world.clientFor(who.user);
    const stream = await openPortForward({
      transport,
      namespace: "agent-sandbox-system",
      pod: "sandbox-router",
      port: 8080,
    });
    const agent = new http.Agent();
    agent.createConnection = () => stream;
    const request = http.get({ host: "router", headers: asked(whose), agent });
    const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
      request.once("response", resolve);
      request.once("error", reject);
    });
    const answer = await readAnswer(response);
    stream.destroy();
    return textOf(answer);
  },
  exec: (who, whose) => throughApi(who, whose, "exec?command=id&stdout=1"),
  "port-forward": (who, whose) => throughApi(who, whose, "portforward?ports=8888"),
};

async function throughApi(who: Tenant, whose: Tenant, subresource: string): Promise<string> {
  dialled.length = 0;
  const path = `/api/v1/namespaces/${whose.namespace}/pods/box/${subresource}`;
  const request = {
    method: "GET",
    path,
    protocol: "websocket",
    headers: { "sec-websocket-protocol": "v4.channel.k8s.io" },
  };
  const refusal = await world
    .clientFor(who.user)
    .transport.upgrade(request)
    .then(
      () => undefined,
      (error: unknown) => error,
    );
  if (dialled.length > 0) return `box of ${dialled[0]?.replace("node-of-", "")}`;
  return refusal instanceof ApiError ? `refused: ${refusal.status}` : String(refusal);
}

function textOf({ status, text }: { status: number; text: string }): string {
  return status === 200 ? text : `refused: ${status}`;
}

const cases = Object.keys(forms).flatMap((form) =>
  ["red", "blue"].flatMap((who) => ["red", "blue"].map((whose) => ({ form, who, whose }))),
);

test.each(cases)("router tenants: by $form, $who asks for the sandbox of $whose", async ({ form, who, whose }) => {
  const text = await forms[form]?.(tenants.get(who) as Tenant, tenants.get(whose) as Tenant);
  if (who === whose) expect(text).toBe(`box of ${whose}`);
  else expect(text).toMatch(/^refused: (401|403|own sandbox instead)/);
});

test("router tenants: a tunnel without rights to open one is refused by the API server", async () => {
  const nobody = { username: "nobody", groups: ["system:authenticated"] };
  const { transport } = world.clientFor(nobody);
  const opened = openPortForward({ transport, namespace: "agent-sandbox-system", pod: "sandbox-router", port: 8080 });
  await expect(opened).rejects.toThrow();
});

test("router tenants: a tunnel leads to the router's port and no other", async () => {
  const { transport } = world.clientFor((tenants.get("red") as Tenant).user);
  const stream = await openPortForward({
    transport,
    namespace: "agent-sandbox-system",
    pod: "sandbox-router",
    port: 22,
  });
  stream.resume();
  await expect(new Promise((_resolve, reject) => stream.once("error", reject))).rejects.toThrow("listens on 8080 only");
});
