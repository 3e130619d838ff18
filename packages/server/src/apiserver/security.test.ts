import { generateKeyPairSync } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openStore } from "../store/sqlite-store.ts";
import type { Store } from "../store/store.ts";
import { silentLogger } from "../telemetry/logger.ts";
import { ApiServer } from "./api-server.ts";
import { openSecretBox } from "./auth/aes-gcm-secret-box.ts";
import { bootstrapObjects } from "./auth/bootstrap-objects.ts";
import { adminUser, nodeUser } from "./auth/components.ts";
import { isWholeBody } from "./request/api-request.ts";
import type { UserInfo } from "./request/user-info.ts";
import { createSecurity, type Security } from "./security.ts";
import { ManualClock, ownCrds, podBody, sandboxBody } from "./testing/test-server.ts";

const privateKeyPem = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({
  type: "pkcs8",
  format: "pem",
}) as string;
const jane: UserInfo = { username: "jane", groups: ["system:authenticated"] };

interface Engine {
  readonly api: ApiServer;
  readonly store: Store;
  readonly security: Security;
}

let directory = "";
let engine: Engine;

async function start(): Promise<Engine> {
  const clock = new ManualClock();
  const store = openStore({ path: join(directory, "db"), clock });
  const security = createSecurity({
    clock,
    random: Math.random,
    serviceAccountKey: { privateKeyPem, keyId: "k" },
    addresses: "10.200.0.0/16",
  });
  const { authorizer, admission, virtualResources, tokens: tokenIssuer } = security;
  const secretBox = await openSecretBox(join(directory, "keys"));
  const api = new ApiServer({
    store,
    clock,
    logger: silentLogger(),
    authorizer,
    admission,
    virtualResources,
    tokenIssuer,
    secretBox,
  });
  await security.attach(api.parts);
  return { api, store, security };
}

async function stop({ api, store }: Engine): Promise<void> {
  await api.close();
  await store.close();
}

async function call(method: string, path: string, body?: unknown, user = adminUser) {
  const headers = method === "PATCH" ? { "content-type": "application/merge-patch+json" } : {};
  const response = await engine.api.handle({
    method,
    path,
    user,
    headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const parts: Uint8Array[] = [];
  if (isWholeBody(response.body)) parts.push(...response.body);
  else for await (const part of response.body) parts.push(part);
  return { status: response.status, body: JSON.parse(Buffer.concat(parts).toString()) };
}

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "security-"));
  engine = await start();
  for (const definition of ownCrds())
    await call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition);
  for (const { resource: r, object } of bootstrapObjects()) {
    const scope = object.metadata.namespace === undefined ? "" : `/namespaces/${object.metadata.namespace}`;
    const answer = await call(
      "POST",
      `${r.group === "" ? "/api" : `/apis/${r.group}`}/${r.version}${scope}/${r.resource}`,
      object,
    );
    expect([201, 409]).toContain(answer.status);
  }
});
afterEach(async () => {
  await stop(engine);
  await rm(directory, { recursive: true });
});

const sandboxesPath = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
const addressOf = (answer: { body: { metadata: { annotations?: Record<string, string> } } }) =>
  answer.body.metadata.annotations?.["agent-sandbox.dev/address"];

test("security: after a restart an address is not given twice", async () => {
  const before = [
    addressOf(await call("POST", sandboxesPath, sandboxBody("a"))),
    addressOf(await call("POST", sandboxesPath, sandboxBody("b"))),
  ];
  await stop(engine);
  engine = await start();
  const after = [
    addressOf(await call("POST", sandboxesPath, sandboxBody("c"))),
    addressOf(await call("POST", sandboxesPath, sandboxBody("d"))),
  ];
  expect(new Set([...before, ...after]).size).toBe(4);
});

test("security: a role binding takes effect with its answer, and its deletion too", async () => {
  const list = "/api/v1/namespaces/default/pods";
  const refused = await call("GET", list, undefined, jane);
  expect(refused.body).toMatchObject({
    code: 403,
    reason: "Forbidden",
    message: 'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default"',
  });
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "view" };
  const bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
  const metadata = { name: "jane" };
  await call("POST", bindings, {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "RoleBinding",
    metadata,
    roleRef,
    subjects: [{ kind: "User", name: "jane" }],
  });
  expect((await call("GET", list, undefined, jane)).status).toBe(200);
  expect((await call("GET", "/api/v1/namespaces/default/secrets", undefined, jane)).status).toBe(403);
  await call("DELETE", `${bindings}/jane`);
  expect((await call("GET", list, undefined, jane)).status).toBe(403);
});

test("security: a token of the API speaks for its account until its pod is gone", async () => {
  const accounts = "/api/v1/namespaces/default/serviceaccounts";
  await call("POST", accounts, { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "w" } });
  const pod = await call("POST", "/api/v1/namespaces/default/pods", podBody("p", { serviceAccountName: "w" }));
  const boundObjectRef = { kind: "Pod", apiVersion: "v1", name: "p", uid: pod.body.metadata.uid };
  const answer = await call("POST", `${accounts}/w/token`, {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenRequest",
    spec: { boundObjectRef },
  });
  expect(answer.status).toBe(201);
  const credentials = { kind: "presented", bearerToken: answer.body.status.token } as const;
  expect((await engine.security.authenticator.authenticate(credentials)).username).toBe(
    "system:serviceaccount:default:w",
  );
  await call("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0");
  await expect(engine.security.authenticator.authenticate(credentials)).rejects.toMatchObject({ status: 401 });
});

test("security: secrets are not readable in the database file", async () => {
  const data = { password: Buffer.from("correct horse battery").toString("base64") };
  await call("POST", "/api/v1/namespaces/default/secrets", {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: "s" },
    data,
  });
  expect((await call("GET", "/api/v1/namespaces/default/secrets/s")).body.data).toEqual(data);
  const files = await Promise.all(
    ["db", "db-wal"].map((file) => readFile(join(directory, file)).catch(() => Buffer.alloc(0))),
  );
  expect(Buffer.concat(files).includes(data.password)).toBe(false);
  await stop(engine);
  engine = await start();
  expect((await call("GET", "/api/v1/namespaces/default/secrets/s")).body.data).toEqual(data);
});

test("security: reviews are answered through the API", async () => {
  const spec = { resourceAttributes: { verb: "list", resource: "pods", namespace: "default" } };
  const review = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec };
  const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
  expect((await call("POST", path, review)).body.status).toMatchObject({ allowed: true });
  expect((await call("POST", path, review, jane)).body.status).toMatchObject({ allowed: false });
});

test("security: a node writes the status of its own pods only", async () => {
  await call("POST", "/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name: "n" } });
  await call("POST", "/api/v1/namespaces/default/pods", podBody("p"));
  const target = { apiVersion: "v1", kind: "Node", name: "n" };
  await call("POST", "/api/v1/namespaces/default/pods/p/binding", {
    apiVersion: "v1",
    kind: "Binding",
    metadata: { name: "p" },
    target,
  });
  const status = { status: { phase: "Running" } };
  expect((await call("PATCH", "/api/v1/namespaces/default/pods/p/status", status, nodeUser("m"))).status).toBe(403);
  expect((await call("PATCH", "/api/v1/namespaces/default/pods/p/status", status, nodeUser("n"))).status).toBe(200);
});

async function bindPod(name: string, node: string): Promise<string> {
  const body = { apiVersion: "v1", kind: "Binding", metadata: { name }, target: { kind: "Node", name: node } };
  const { body: pod } = await call("POST", "/api/v1/namespaces/default/pods", podBody(name));
  await call("POST", `/api/v1/namespaces/default/pods/${name}/binding`, body);
  return pod.metadata.uid;
}

test("security: a node gets tokens only for pods bound to it", async () => {
  const account = { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "default" } };
  await call("POST", "/api/v1/namespaces/default/serviceaccounts", account);
  const uid = await bindPod("p", "n");
  const path = "/api/v1/namespaces/default/serviceaccounts/default/token";
  const ask = async (user: UserInfo, boundObjectRef?: object): Promise<number> => {
    const spec = { audiences: [], ...(boundObjectRef === undefined ? {} : { boundObjectRef }) };
    const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", metadata: {}, spec };
    return (await call("POST", path, body, user)).status;
  };
  const bound = { apiVersion: "v1", kind: "Pod", name: "p", uid };
  expect(await ask(nodeUser("n"), bound)).toBe(201);
  expect(await ask(nodeUser("m"), bound)).toBe(403);
  expect(await ask(nodeUser("n"), { ...bound, uid: "another" })).toBe(403);
  expect(await ask(nodeUser("n"))).toBe(403);
  expect(await ask(adminUser)).toBe(201);
});

test("security: a node reads the secrets that its pods name, and no others", async () => {
  const secrets = "/api/v1/namespaces/default/secrets";
  for (const name of ["mine", "other"])
    await call("POST", secrets, { apiVersion: "v1", kind: "Secret", metadata: { name } });
  const volumes = [{ name: "v", secret: { secretName: "mine" } }];
  const pod = await call("POST", "/api/v1/namespaces/default/pods", podBody("p", { nodeName: "n", volumes }));
  expect(pod.status).toBe(201);
  const read = async (path: string, node: string) => (await call("GET", path, undefined, nodeUser(node))).status;
  expect(await read(`${secrets}/mine`, "n")).toBe(200);
  expect(await read(`${secrets}/other`, "n")).toBe(403);
  expect(await read(`${secrets}/mine`, "m")).toBe(403);
  expect(await read(secrets, "n")).toBe(403);
  await call("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0");
  expect(await read(`${secrets}/mine`, "n")).toBe(403);
});

test("security: what verifies tokens is published to ServiceAccounts", async () => {
  const account = {
    username: "system:serviceaccount:default:default",
    groups: ["system:serviceaccounts", "system:authenticated"],
  };
  const configuration = await call("GET", "/.well-known/openid-configuration", undefined, account);
  expect(configuration.body.issuer).toBe("https://kubernetes.default.svc.cluster.local");
  const keys = await call("GET", "/openid/v1/jwks", undefined, account);
  expect(keys.body.keys).toMatchObject([{ kid: "k", alg: "ES256", use: "sig" }]);
  expect(JSON.stringify(keys.body)).not.toContain('"d"');
  expect((await call("GET", "/openid/v1/jwks", undefined, jane)).status).toBe(403);
});
