import { generateKeyPairSync } from "node:crypto";
import { nodes, type Pod, pods, type ServiceAccount, secrets, serviceAccounts } from "@agent-sandbox/api";
import { decodeJwt } from "jose";
import { beforeEach, expect, test } from "vitest";
import { EngineAuthenticator } from "./engine-authenticator.ts";
import { RbacAuthorizer } from "./rbac-authorizer.ts";
import { RbacIndex } from "./rbac-index.ts";
import { Reviews } from "./reviews.ts";
import { ServiceAccountTokens } from "./service-account-tokens.ts";
import { MemoryReader } from "./testing/memory-reader.ts";

const account: ServiceAccount = {
  apiVersion: "v1",
  kind: "ServiceAccount",
  metadata: { namespace: "a", name: "w", uid: "sa-1" },
};
const pod: Pod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { namespace: "a", name: "p", uid: "pod-1" },
  spec: { containers: [], serviceAccountName: "w", nodeName: "n" },
};
const privateKeyPem = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({
  type: "pkcs8",
  format: "pem",
}) as string;

let reader = new MemoryReader();
let nowMs = 0;
let tokens = makeTokens();

function makeTokens(key = privateKeyPem): ServiceAccountTokens {
  const clock = { nowMs: () => nowMs };
  const issuer = "https://kubernetes.default.svc";
  return new ServiceAccountTokens({ reader, clock, privateKeyPem: key, keyId: "k", issuer, apiAudiences: [issuer] });
}

beforeEach(() => {
  nowMs = Date.parse("2026-01-01T00:00:00Z");
  reader = new MemoryReader();
  reader.put(serviceAccounts, account).put(pods, pod);
  reader.put(nodes, { apiVersion: "v1", kind: "Node", metadata: { name: "n", uid: "node-1" } });
  reader.put(secrets, { apiVersion: "v1", kind: "Secret", metadata: { namespace: "a", name: "s", uid: "secret-1" } });
  tokens = makeTokens();
});

test("ServiceAccountTokens: a token speaks for its account, with Kubernetes' claims", async () => {
  const { token, expirationTimestamp } = await tokens.issue(account, { boundObjectRef: { kind: "Pod", name: "p" } });
  expect(expirationTimestamp).toBe("2026-01-01T01:00:00Z");
  expect(decodeJwt(token)).toMatchObject({
    iss: "https://kubernetes.default.svc",
    sub: "system:serviceaccount:a:w",
    aud: ["https://kubernetes.default.svc"],
    "kubernetes.io": {
      namespace: "a",
      serviceaccount: { name: "w", uid: "sa-1" },
      pod: { name: "p", uid: "pod-1" },
      node: { name: "n", uid: "node-1" },
    },
  });
  expect((await tokens.verify(token))?.user).toMatchObject({
    username: "system:serviceaccount:a:w",
    uid: "sa-1",
    groups: ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
    extra: { "authentication.kubernetes.io/pod-name": ["p"] },
  });
});

test("ServiceAccountTokens: a token ends, also when its signature is remembered", async () => {
  const { token } = await tokens.issue(account, { expirationSeconds: 600 });
  nowMs += 599_000;
  expect(await tokens.verify(token)).toBeDefined();
  nowMs += 2_000;
  expect(await tokens.verify(token)).toBeUndefined();
});

test.each([
  ["pod", { kind: "Pod", name: "p" }, () => reader.remove(pods, { namespace: "a", name: "p" })],
  [
    "recreated pod",
    { kind: "Pod", name: "p" },
    () => reader.put(pods, { ...pod, metadata: { ...pod.metadata, uid: "pod-2" } }),
  ],
  ["secret", { kind: "Secret", name: "s" }, () => reader.remove(secrets, { namespace: "a", name: "s" })],
  ["node", { kind: "Node", name: "n" }, () => reader.remove(nodes, { name: "n" })],
  ["service account", undefined, () => reader.remove(serviceAccounts, { namespace: "a", name: "w" })],
])("ServiceAccountTokens: a token dies with its %s", async (_what, boundObjectRef, vanish) => {
  const { token } = await tokens.issue(account, boundObjectRef === undefined ? {} : { boundObjectRef });
  expect(await tokens.verify(token)).toBeDefined();
  vanish();
  expect(await tokens.verify(token)).toBeUndefined();
});

test("ServiceAccountTokens: another audience or another key is refused", async () => {
  const vault = await tokens.issue(account, { audiences: ["vault"] });
  expect(await tokens.verify(vault.token)).toBeUndefined();
  expect((await tokens.verify(vault.token, ["vault", "x"]))?.audiences).toEqual(["vault"]);
  const foreign = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({
    type: "pkcs8",
    format: "pem",
  }) as string;
  const { token } = await makeTokens(foreign).issue(account, {});
  expect(await tokens.verify(token)).toBeUndefined();
  expect(await tokens.verify("not.a.token")).toBeUndefined();
  const [, body, signature] = (await tokens.issue(account, {})).token.split(".");
  const unsigned = `${Buffer.from('{"alg":"none"}').toString("base64url")}.${body}.${signature}`;
  expect(await tokens.verify(unsigned)).toBeUndefined();
});

test.each([
  [
    { expirationSeconds: 599 },
    "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
  ],
  [{ boundObjectRef: { kind: "Pod", name: "gone" } }, 'pods "gone" not found'],
  [{ boundObjectRef: { kind: "Pod", name: "p", uid: "other" } }, "does not match the UID in record"],
  [{ boundObjectRef: { kind: "Job", name: "p" } }, "cannot bind token to object of type /v1, Kind=Job"],
])("ServiceAccountTokens: request %j is refused", async (spec, message) => {
  await expect(tokens.issue(account, spec)).rejects.toThrow(message);
});

test("ServiceAccountTokens: a pod of another account cannot be bound", async () => {
  reader.put(pods, { ...pod, spec: { containers: [], serviceAccountName: "other" } });
  const issue = tokens.issue(account, { boundObjectRef: { kind: "Pod", name: "p" } });
  await expect(issue).rejects.toThrow("different serviceaccount name");
});

test("ServiceAccountTokens: discovery names the key that signs", async () => {
  expect(tokens.discoveryDocument()).toMatchObject({ jwks_uri: "https://kubernetes.default.svc/openid/v1/jwks" });
  expect((await tokens.keySet()).keys).toMatchObject([{ kid: "k", kty: "EC", crv: "P-256", alg: "ES256", use: "sig" }]);
  expect(JSON.stringify(await tokens.keySet())).not.toContain('"d"');
});

test("EngineAuthenticator: nothing, a certificate, a static token and rubbish", async () => {
  const root = { token: "s3cret", user: { username: "root", groups: ["system:masters"] } };
  const authenticator = new EngineAuthenticator(tokens, [root]);
  expect((await authenticator.authenticate({ kind: "none" })).username).toBe("system:anonymous");
  expect(
    await authenticator.authenticate({
      kind: "presented",
      certificate: { commonName: "jane", organizations: ["devs"] },
    }),
  ).toEqual({
    username: "jane",
    groups: ["devs", "system:authenticated"],
  });
  expect((await authenticator.authenticate({ kind: "presented", bearerToken: "s3cret" })).username).toBe("root");
  await expect(authenticator.authenticate({ kind: "presented", bearerToken: "nope" })).rejects.toMatchObject({
    status: 401,
  });
});

test("Reviews: a TokenReview tells who a token is, or that it is nobody", async () => {
  const reviews = new Reviews(new EngineAuthenticator(tokens), new RbacAuthorizer(new RbacIndex()));
  const { token } = await tokens.issue(account, {});
  const ask = (spec: { token: string; audiences?: string[] }) =>
    reviews.answer(
      "tokenreviews",
      { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", metadata: { name: "" }, spec } as never,
      { user: { username: "x", groups: [] }, namespace: "" },
    );
  expect(await ask({ token })).toMatchObject({
    status: { authenticated: true, user: { username: "system:serviceaccount:a:w" } },
  });
  expect(await ask({ token: "no" })).toMatchObject({ status: { authenticated: false } });
  expect(await ask({ token, audiences: ["vault"] })).toMatchObject({ status: { authenticated: false } });
});

test("Reviews: access reviews answer for the caller and for others", async () => {
  const reviews = new Reviews(new EngineAuthenticator(tokens), new RbacAuthorizer(new RbacIndex()));
  const asked = { user: { username: "root", groups: ["system:masters"] }, namespace: "a" };
  const attributes = { verb: "get", resource: "pods", namespace: "a" };
  const ask = (kind: string, spec: unknown) =>
    reviews.answer(
      `${kind.toLowerCase()}s`,
      { apiVersion: "authorization.k8s.io/v1", kind, metadata: { name: "" }, spec } as never,
      asked,
    );
  expect(await ask("SelfSubjectAccessReview", { resourceAttributes: attributes })).toMatchObject({
    status: { allowed: true },
  });
  expect(await ask("SubjectAccessReview", { user: "jane", resourceAttributes: attributes })).toMatchObject({
    status: { allowed: false },
  });
  expect(await ask("LocalSubjectAccessReview", { user: "jane", resourceAttributes: attributes })).toMatchObject({
    status: { allowed: false },
  });
  expect(await ask("SelfSubjectRulesReview", { namespace: "a" })).toMatchObject({
    status: { resourceRules: [{ verbs: ["*"] }] },
  });
  await expect(ask("SelfSubjectAccessReview", {})).rejects.toThrow("exactly one of");
  await expect(
    ask("LocalSubjectAccessReview", { user: "j", resourceAttributes: { ...attributes, namespace: "b" } }),
  ).rejects.toThrow("must match metadata.namespace");
});
