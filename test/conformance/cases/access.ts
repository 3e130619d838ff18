import { expect } from "vitest";
import type { Json } from "../api-call.ts";
import { at, binding, configMap, inNamespace, role } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import { type CaseContext, type Group, kase, table } from "../suite.ts";

const rule = (verbs: string[], resources: string[], rest: Json = {}): Json => ({
  apiGroups: [""],
  verbs,
  resources,
  ...rest,
});

/** A user with one role in a namespace of its own. */
async function userWith(c: CaseContext, rules: Json[]): Promise<{ user: string; ns: string }> {
  const ns = await c.namespace();
  const user = c.unique("user");
  await c.create(inNamespace(at.roles, ns), role("Role", "r", rules));
  await c.create(inNamespace(at.roleBindings, ns), binding("RoleBinding", "b", user, ["Role", "r"]));
  await c.eventually(async () => {
    const spec = {
      user,
      resourceAttributes: {
        namespace: ns,
        group: rules[0].apiGroups[0],
        verb: rules[0].verbs[0],
        resource: rules[0].resources[0],
        name: rules[0].resourceNames?.[0],
      },
    };
    const review = { apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec };
    const { body } = await c.api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", { body: review });
    return body.status.allowed === true;
  });
  return { user, ns };
}

const verbs = table<[verb: string, method: string, suffix: string, body?: Json]>(
  [
    ["get", "get", "GET", "/a"],
    ["list", "list", "GET", ""],
    ["create", "create", "POST", "", configMap("new")],
    ["update", "update", "PUT", "/a", configMap("a", { x: "2" })],
    ["delete", "delete", "DELETE", "/a"],
    ["deletecollection", "deletecollection", "DELETE", ""],
  ].map(([title, ...row]) => [`verb ${title} is checked`, ...row] as [string, string, string, string, Json?]),
  async (c, verb, method, suffix, body) => {
    const { user, ns } = await userWith(c, [rule([verb], ["configmaps"])]);
    const path = inNamespace(at.configMaps, ns);
    await c.create(path, configMap("a"));
    const options = { as: user, ...(body !== undefined && { body }) };
    expect((await c.api.call(method, path + suffix, options)).status).toBeLessThan(300);
    const refused = await c.api.call(method, inNamespace(at.secrets, ns) + suffix, options);
    expect([refused.status, refused.body.reason]).toEqual([403, "Forbidden"]);
  },
);

const scripts: Script[] = [
  ["a stranger may not list", { do: `GET ${at.configMaps}`, as: "stranger" }],
  ["a stranger may not get", { do: `GET ${at.configMaps}/a`, as: "stranger" }],
  ["a stranger may not create", { do: `POST ${at.configMaps}`, as: "stranger", body: configMap("a") }],
  ["a stranger may not read a subresource", { do: `GET ${at.pods}/a/log`, as: "stranger" }],
  ["a stranger may not read cluster objects", { do: "GET /api/v1/nodes", as: "stranger" }],
  ["a stranger may not read a custom kind", { do: `GET ${at.widgets}`, as: "stranger" }],
  [
    "a stranger may not patch",
    { do: `PATCH ${at.configMaps}/a`, type: "application/merge-patch+json", as: "stranger", body: {} },
  ],
  ["a stranger may not read a path", { do: "GET /metrics", as: "stranger" }],
  [
    "a stranger may read discovery",
    {
      do: "GET /api",
      as: "stranger",
      headers: { "impersonate-group": "system:authenticated" },
      show: ({ kind }) => kind,
    },
  ],
  ["a role's reference cannot be changed", ...roleSteps()],
  [
    "a stranger may not impersonate",
    { do: "GET /api", headers: { "impersonate-uid": "x" }, show: (b) => b, loose: true },
  ],
];

function roleSteps(): Step[] {
  const make: Step = {
    do: `POST ${at.roleBindings}`,
    body: binding("RoleBinding", "b", "u", ["ClusterRole", "view"]),
    show: "nothing",
  };
  return [
    make,
    { do: `PUT ${at.roleBindings}/b`, body: binding("RoleBinding", "b", "u", ["ClusterRole", "edit"]), loose: true },
  ];
}

const coded = [
  kase("resourceNames limit to one object", async (c) => {
    const { user, ns } = await userWith(c, [rule(["get"], ["configmaps"], { resourceNames: ["a"] })]);
    const path = inNamespace(at.configMaps, ns);
    for (const name of ["a", "b"]) await c.create(path, configMap(name));
    const codes = await Promise.all(
      ["/a", "/b", ""].map(async (suffix) => (await c.api.call("GET", path + suffix, { as: user })).status),
    );
    expect(codes).toEqual([200, 403, 403]);
  }),
  kase("a subresource is its own right", async (c) => {
    const { user, ns } = await userWith(c, [rule(["get", "patch"], ["pods"])]);
    const patch = { type: "application/merge-patch+json", body: {}, as: user };
    expect((await c.api.call("PATCH", inNamespace(at.pods, ns) + "/a/status", patch)).status).toBe(403);
    expect((await c.api.call("PATCH", inNamespace(at.pods, ns) + "/a", patch)).status).toBe(404);
  }),
  kase("a role does not reach other namespaces", async (c) => {
    const { user } = await userWith(c, [rule(["list"], ["configmaps"])]);
    expect((await c.api.call("GET", "/api/v1/namespaces/default/configmaps", { as: user })).status).toBe(403);
    expect((await c.api.call("GET", "/api/v1/configmaps", { as: user })).status).toBe(403);
  }),
  kase("a cluster role reaches all namespaces", async (c) => {
    const [name, user] = [c.unique("role"), c.unique("user")];
    await c.create(at.clusterRoles, role("ClusterRole", name, [rule(["list"], ["configmaps"])]));
    await c.create(at.clusterRoleBindings, binding("ClusterRoleBinding", name, user, ["ClusterRole", name]));
    await c.eventually(
      async () => (await c.api.call("GET", "/api/v1/configmaps?limit=1", { as: user })).status === 200,
    );
    await c.api.call("DELETE", `${at.clusterRoleBindings}/${name}`);
    await c.eventually(
      async () => (await c.api.call("GET", "/api/v1/configmaps?limit=1", { as: user })).status === 403,
    );
    await c.api.call("DELETE", `${at.clusterRoles}/${name}`);
  }),
  kase("nobody grants what he has not", async (c) => {
    const { user, ns } = await userWith(c, [
      { apiGroups: ["rbac.authorization.k8s.io"], verbs: ["create"], resources: ["roles", "rolebindings"] },
    ]);
    const answer = await c.api.call("POST", inNamespace(at.roles, ns), {
      as: user,
      body: role("Role", "more", [rule(["get"], ["secrets"])]),
    });
    expect(answer.status).toBe(403);
    expect(answer.body.message).toContain("is attempting to grant RBAC permissions not currently held");
  }),
  kase("nobody binds what he has not", async (c) => {
    const { user, ns } = await userWith(c, [
      { apiGroups: ["rbac.authorization.k8s.io"], verbs: ["create"], resources: ["roles", "rolebindings"] },
    ]);
    const answer = await c.api.call("POST", inNamespace(at.roleBindings, ns), {
      as: user,
      body: binding("RoleBinding", "more", user, ["ClusterRole", "admin"]),
    });
    expect(answer.status).toBe(403);
    expect(answer.body.message).toContain("is attempting to grant RBAC permissions not currently held");
  }),
  ...(["view", "edit", "admin"] as const).map((name) =>
    kase(`the role ${name} is there`, async (c) => {
      const ns = await c.namespace();
      const user = c.unique("user");
      await c.create(inNamespace(at.roleBindings, ns), binding("RoleBinding", "b", user, ["ClusterRole", name]));
      const path = inNamespace(at.configMaps, ns);
      await c.eventually(async () => (await c.api.call("GET", path, { as: user })).status === 200);
      expect((await c.api.call("GET", inNamespace(at.secrets, ns), { as: user })).status).toBe(
        name === "view" ? 403 : 200,
      );
      expect((await c.api.call("POST", path, { as: user, body: configMap("x") })).status).toBe(
        name === "view" ? 403 : 201,
      );
      const grant = role("Role", "r", [rule(["get"], ["configmaps"])]);
      expect((await c.api.call("POST", inNamespace(at.roles, ns), { as: user, body: grant })).status).toBe(
        name === "admin" ? 201 : 403,
      );
    }),
  ),
];

/** Authorisation by roles. */
export const access: Group = {
  name: "access",
  cases: [...verbs, ...scripted("access", scripts), ...coded],
  breakage: (_request, answer) => (answer.status === 403 ? { ...answer, status: 200 } : answer),
};
