import { expect } from "vitest";
import { patchTypes } from "../api-call.ts";
import { at, configMap, inNamespace } from "../objects.ts";
import { type Script, scripted } from "../scripted.ts";
import { type Group, kase } from "../suite.ts";

const namespace = (name: string, spec = {}) => ({ apiVersion: "v1", kind: "Namespace", metadata: { name }, ...spec });

const scripts: Script[] = [
  [
    "a new one is Active",
    { do: "POST /api/v1/namespaces", body: namespace("$U") },
    { do: "DELETE /api/v1/namespaces/$U", show: "nothing" },
  ],
  ["a bad name is refused", { do: "POST /api/v1/namespaces", body: namespace("Bad_$U") }],
  ["a name too long is refused", { do: "POST /api/v1/namespaces", body: namespace("a".repeat(64)) }],
  ["a name with a dot is refused", { do: "POST /api/v1/namespaces", body: namespace("a.b") }],
  ["default cannot be deleted", { do: "DELETE /api/v1/namespaces/default" }],
  ["kube-system cannot be deleted", { do: "DELETE /api/v1/namespaces/kube-system" }],
  ["has its name as a label", { do: "GET /api/v1/namespaces/$NS", show: ({ metadata }) => metadata.labels }],
  [
    "the name label comes back",
    {
      do: "PATCH /api/v1/namespaces/$NS",
      type: patchTypes.merge,
      body: { metadata: { labels: { "kubernetes.io/metadata.name": "other" } } },
    },
  ],
  ["namespaces cannot be deleted as a collection", { do: "DELETE /api/v1/namespaces?labelSelector=none%3Dnone" }],
  ["a missing one is NotFound", { do: "GET /api/v1/namespaces/none-$U" }],
];

const coded = [
  kase("deletion removes what is inside, then it", async (c) => {
    const ns = await c.namespace();
    await c.create(inNamespace(at.configMaps, ns), configMap("a"));
    const { body } = await c.api.call("DELETE", `/api/v1/namespaces/${ns}`);
    expect([body.status.phase, body.spec.finalizers]).toEqual(["Terminating", ["kubernetes"]]);
    await c.eventually(async () => (await c.api.call("GET", `/api/v1/namespaces/${ns}`)).status === 404);
    expect((await c.api.call("GET", inNamespace(at.configMaps, ns) + "/a")).status).toBe(404);
  }),
  kase("nothing can be made in one that is going", async (c) => {
    const ns = await c.namespace();
    await c.create(inNamespace(at.configMaps, ns), configMap("hold", {}, { finalizers: ["example.com/hold"] }));
    await c.api.call("DELETE", `/api/v1/namespaces/${ns}`);
    const answer = await c.api.call("POST", inNamespace(at.configMaps, ns), { body: configMap("late") });
    expect([answer.status, answer.body.reason]).toEqual([403, "Forbidden"]);
    expect(answer.body.message).toBe(
      `configmaps "late" is forbidden: unable to create new content in namespace ${ns} because it is being terminated`,
    );
    expect(answer.body.details.causes).toEqual([
      { reason: "NamespaceTerminating", message: `namespace ${ns} is being terminated`, field: "metadata.namespace" },
    ]);
    await c.api.call("PATCH", inNamespace(at.configMaps, ns) + "/hold", {
      type: patchTypes.merge,
      body: { metadata: { finalizers: null } },
    });
    await c.eventually(async () => (await c.api.call("GET", `/api/v1/namespaces/${ns}`)).status === 404);
  }),
  kase("tells why it cannot go", async (c) => {
    const ns = await c.namespace();
    const path = inNamespace(at.configMaps, ns);
    await c.create(path, configMap("hold", {}, { finalizers: ["example.com/hold"] }));
    await c.api.call("DELETE", `/api/v1/namespaces/${ns}`);
    await c.eventually(async () => {
      const { status } = await c.get(`/api/v1/namespaces/${ns}`);
      const found = status.conditions?.find((each: { type: string }) => each.type === "NamespaceFinalizersRemaining");
      return found?.status === "True" && found.message.includes("example.com/hold in 1 resource instances");
    });
    await c.api.call("PATCH", `${path}/hold`, { type: patchTypes.merge, body: { metadata: { finalizers: null } } });
    await c.eventually(async () => (await c.api.call("GET", `/api/v1/namespaces/${ns}`)).status === 404);
  }),
  kase("gets the authority's certificate", async (c) => {
    const path = inNamespace(at.configMaps, await c.namespace());
    const map = await c.eventually(async () => {
      const answer = await c.api.call("GET", `${path}/kube-root-ca.crt`);
      return answer.status === 200 ? answer.body : undefined;
    });
    expect(map.data["ca.crt"]).toContain("BEGIN CERTIFICATE");
  }),
];

/** Namespaces and their life. */
export const namespacesGroup: Group = {
  name: "namespaces",
  cases: [...scripted("namespaces", scripts), ...coded],
  breakage: (request, answer) =>
    request.path === "/api/v1/namespaces/default" && request.method === "DELETE" ? { ...answer, status: 200 } : answer,
};
