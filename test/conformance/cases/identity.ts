import { expect } from "vitest";
import type { Json } from "../api-call.ts";
import { at, inNamespace, pod } from "../objects.ts";
import { type Script, scripted } from "../scripted.ts";
import { type CaseContext, type Group, kase } from "../suite.ts";

const authorization = "/apis/authorization.k8s.io/v1";
const authentication = "/apis/authentication.k8s.io/v1";
const review = (kind: string, spec: Json): Json => ({ apiVersion: "authorization.k8s.io/v1", kind, spec });
const pods = { namespace: "default", verb: "get", resource: "pods" };
const allowed = ({ status }: Json): Json => status.allowed;

const scripts: Script[] = [
  [
    "who I am",
    {
      do: `POST ${authentication}/selfsubjectreviews`,
      body: { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" },
      show: ({ status }) => ({ username: status.userInfo.username, groups: status.userInfo.groups }),
    },
  ],
  [
    "who I am when impersonating",
    {
      do: `POST ${authentication}/selfsubjectreviews`,
      as: "jane",
      headers: { "impersonate-group": "team", "impersonate-extra-scopes": "a" },
      body: { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" },
      show: ({ status }) => status.userInfo,
    },
  ],
  [
    "may I: yes",
    {
      do: `POST ${authorization}/selfsubjectaccessreviews`,
      body: review("SelfSubjectAccessReview", { resourceAttributes: pods }),
      show: allowed,
    },
  ],
  [
    "may I: no",
    {
      do: `POST ${authorization}/selfsubjectaccessreviews`,
      as: "jane",
      headers: { "impersonate-group": "system:authenticated" },
      body: review("SelfSubjectAccessReview", { resourceAttributes: pods }),
      show: ({ status }) => ({ allowed: status.allowed }),
    },
  ],
  [
    "may I reach a path: yes",
    {
      do: `POST ${authorization}/selfsubjectaccessreviews`,
      body: review("SelfSubjectAccessReview", { nonResourceAttributes: { path: "/metrics", verb: "get" } }),
      show: allowed,
    },
  ],
  [
    "may I: neither kind is refused",
    { do: `POST ${authorization}/selfsubjectaccessreviews`, body: review("SelfSubjectAccessReview", {}), loose: true },
  ],
  [
    "may I: both kinds are refused",
    {
      do: `POST ${authorization}/selfsubjectaccessreviews`,
      body: review("SelfSubjectAccessReview", {
        resourceAttributes: pods,
        nonResourceAttributes: { path: "/", verb: "get" },
      }),
      loose: true,
    },
  ],
  [
    "may somebody: no",
    {
      do: `POST ${authorization}/subjectaccessreviews`,
      body: review("SubjectAccessReview", { user: "jane", resourceAttributes: pods }),
      show: allowed,
    },
  ],
  [
    "may somebody of masters: yes",
    {
      do: `POST ${authorization}/subjectaccessreviews`,
      body: review("SubjectAccessReview", { user: "jane", groups: ["system:masters"], resourceAttributes: pods }),
      show: allowed,
    },
  ],
  [
    "may nobody is refused",
    {
      do: `POST ${authorization}/subjectaccessreviews`,
      body: review("SubjectAccessReview", { resourceAttributes: pods }),
      loose: true,
    },
  ],
  [
    "may somebody here: other namespace is refused",
    {
      do: `POST ${authorization}/namespaces/$NS/localsubjectaccessreviews`,
      body: review("LocalSubjectAccessReview", { user: "jane", resourceAttributes: pods }),
    },
  ],
  [
    "may somebody here: no",
    {
      do: `POST ${authorization}/namespaces/$NS/localsubjectaccessreviews`,
      body: review("LocalSubjectAccessReview", { user: "jane", resourceAttributes: { ...pods, namespace: "$NS" } }),
      show: allowed,
    },
  ],
  [
    "my rules",
    {
      do: `POST ${authorization}/selfsubjectrulesreviews`,
      body: review("SelfSubjectRulesReview", { namespace: "default" }),
      show: ({ status }) => ({
        incomplete: status.incomplete,
        all: status.resourceRules.some((each: Json) => each.verbs[0] === "*" && each.resources[0] === "*"),
      }),
    },
  ],
  [
    "my rules without a namespace are refused",
    { do: `POST ${authorization}/selfsubjectrulesreviews`, body: review("SelfSubjectRulesReview", {}), show: (b) => b },
  ],
  [
    "a token that is none",
    {
      do: `POST ${authentication}/tokenreviews`,
      body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token: "nonsense" } },
      show: ({ status }) => status.authenticated ?? false,
    },
  ],
  [
    "a review without a token is refused",
    {
      do: `POST ${authentication}/tokenreviews`,
      body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: {} },
    },
  ],
  ["a token of a missing account is NotFound", { do: `POST ${at.serviceAccounts}/none/token`, body: tokenRequest() }],
  [
    "a token for too short a time is refused",
    { do: `POST ${at.serviceAccounts}/default/token`, body: tokenRequest({ expirationSeconds: 10 }) },
  ],
  [
    "a token for a missing Pod is refused",
    {
      do: `POST ${at.serviceAccounts}/default/token`,
      body: tokenRequest({ boundObjectRef: { apiVersion: "v1", kind: "Pod", name: "none" } }),
    },
  ],
  [
    "a token for another kind is refused",
    {
      do: `POST ${at.serviceAccounts}/default/token`,
      body: tokenRequest({ boundObjectRef: { apiVersion: "v1", kind: "ConfigMap", name: "none" } }),
    },
  ],
];

function tokenRequest(spec: Json = {}): Json {
  return { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec };
}

const claimsOf = (token: string): Json => JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString());

async function tokenOf(c: CaseContext, ns: string, spec: Json = {}): Promise<string> {
  const made = await c.create(`${inNamespace(at.serviceAccounts, ns)}/default/token`, tokenRequest(spec));
  return made.status.token;
}

async function reviewed(c: CaseContext, token: string, audiences?: string[]): Promise<Json> {
  const spec = { token, ...(audiences !== undefined && { audiences }) };
  const made = await c.create(`${authentication}/tokenreviews`, {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenReview",
    spec,
  });
  return made.status;
}

const coded = [
  kase("a token is of its account", async (c) => {
    const ns = await c.namespace();
    const status = await reviewed(c, await tokenOf(c, ns));
    expect(status.authenticated).toBe(true);
    expect(status.user.username).toBe(`system:serviceaccount:${ns}:default`);
    expect(status.user.groups).toEqual([
      "system:serviceaccounts",
      `system:serviceaccounts:${ns}`,
      "system:authenticated",
    ]);
  }),
  kase("a token has the claims of its kind", async (c) => {
    const ns = await c.namespace();
    const claims = claimsOf(await tokenOf(c, ns, { expirationSeconds: 700 }));
    expect(claims.sub).toBe(`system:serviceaccount:${ns}:default`);
    expect(claims.exp - claims.iat).toBe(700);
    expect(claims.aud).toEqual(["https://kubernetes.default.svc.cluster.local"]);
    expect(claims["kubernetes.io"].serviceaccount.name).toBe("default");
  }),
  kase("a token authenticates requests", async (c) => {
    const ns = await c.namespace();
    const answer = await c.withToken(await tokenOf(c, ns)).call("GET", inNamespace(at.configMaps, ns));
    expect([answer.status, answer.body.reason]).toEqual([403, "Forbidden"]);
    expect(answer.body.message).toContain(
      `User "system:serviceaccount:${ns}:default" cannot list resource "configmaps"`,
    );
  }),
  kase("a token of another audience does not authenticate", async (c) => {
    const ns = await c.namespace();
    const token = await tokenOf(c, ns, { audiences: ["elsewhere"] });
    expect((await c.withToken(token).call("GET", "/api")).status).toBe(401);
    expect((await reviewed(c, token)).authenticated ?? false).toBe(false);
    expect(await reviewed(c, token, ["elsewhere"])).toMatchObject({ authenticated: true, audiences: ["elsewhere"] });
  }),
  kase("a token ends with its Pod", async (c) => {
    const ns = await c.namespace();
    const made = await c.create(inNamespace(at.pods, ns), pod("p"));
    const token = await tokenOf(c, ns, {
      boundObjectRef: { apiVersion: "v1", kind: "Pod", name: "p", uid: made.metadata.uid },
    });
    expect(claimsOf(token)["kubernetes.io"].pod).toEqual({ name: "p", uid: made.metadata.uid });
    expect((await reviewed(c, token)).authenticated).toBe(true);
    await c.api.call("DELETE", `${inNamespace(at.pods, ns)}/p?gracePeriodSeconds=0`);
    await c.eventually(async () => !(await reviewed(c, token)).authenticated);
  }),
  kase("a token ends with its account", async (c) => {
    const ns = await c.namespace();
    await c.create(inNamespace(at.serviceAccounts, ns), {
      apiVersion: "v1",
      kind: "ServiceAccount",
      metadata: { name: "brief" },
    });
    const { status } = await c.create(`${inNamespace(at.serviceAccounts, ns)}/brief/token`, tokenRequest());
    expect((await reviewed(c, status.token)).authenticated).toBe(true);
    await c.api.call("DELETE", `${inNamespace(at.serviceAccounts, ns)}/brief`);
    await c.eventually(async () => !(await reviewed(c, status.token)).authenticated);
  }),
  kase("a broken signature does not authenticate", async (c) => {
    const token = await tokenOf(c, await c.namespace());
    const broken = token.slice(0, -10) + (token.endsWith("AAAAAAAAAA") ? "BBBBBBBBBB" : "AAAAAAAAAA");
    const answer = await c.withToken(broken).call("GET", "/api");
    expect([answer.status, answer.body.reason, answer.body.message]).toEqual([401, "Unauthorized", "Unauthorized"]);
  }),
  kase("nobody without credentials reads objects", async (c) => {
    const answer = await c.withToken(undefined).call("GET", "/api/v1/namespaces/default/secrets");
    expect([401, 403]).toContain(answer.status);
  }),
  kase("health is open to everybody", async (c) => {
    const codes = await Promise.all(
      ["/livez", "/readyz", "/version"].map(async (path) => (await c.withToken(undefined).call("GET", path)).status),
    );
    expect(codes).toEqual([200, 200, 200]);
  }),
];

/** Reviews and tokens. */
export const identity: Group = {
  name: "identity",
  cases: [...scripted("identity", scripts), ...coded],
  breakage: (_request, answer) =>
    answer.body?.status?.allowed === undefined
      ? answer
      : { ...answer, body: { ...answer.body, status: { allowed: true } } },
};
