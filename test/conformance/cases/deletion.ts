import { expect } from "vitest";
import type { Json } from "../api-call.ts";
import { patchTypes } from "../api-call.ts";
import { at, configMap, inNamespace, pod, sandbox, widget } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import { type CaseContext, type Group, kase } from "../suite.ts";

const maps = at.configMaps;
const held = { finalizers: ["example.com/hold"] };
const make = (path: string, body: Json): Step => ({ do: `POST ${path}`, body, show: "nothing" });
const options = (body: Json): Json => ({ apiVersion: "v1", kind: "DeleteOptions", ...body });
const lifeOf = ({ metadata }: Json): Json => ({
  deletionTimestamp: metadata.deletionTimestamp,
  grace: metadata.deletionGracePeriodSeconds,
  finalizers: metadata.finalizers,
});

/** A node that takes no Pods by itself, so that a Pod bound to it stays as it is. */
const node: Step = {
  do: "POST /api/v1/nodes",
  body: { apiVersion: "v1", kind: "Node", metadata: { name: "$U" }, spec: { unschedulable: true } },
  show: "nothing",
};

const gone: Step = { do: "DELETE /api/v1/nodes/$U", show: "nothing" };

const scripts: Script[] = [
  [
    "a finalizer keeps the object",
    make(maps, configMap("a", {}, held)),
    { do: `DELETE ${maps}/a`, show: lifeOf },
    { do: `GET ${maps}/a`, show: lifeOf },
  ],
  [
    "a second delete changes nothing",
    make(maps, configMap("a", {}, held)),
    { do: `DELETE ${maps}/a`, show: "nothing" },
    { do: `DELETE ${maps}/a`, show: lifeOf },
  ],
  [
    "removing the last finalizer removes the object",
    make(maps, configMap("a", {}, held)),
    { do: `DELETE ${maps}/a`, show: "nothing" },
    { do: `PATCH ${maps}/a`, type: patchTypes.merge, body: { metadata: { finalizers: [] } }, show: lifeOf },
    { do: `GET ${maps}/a`, show: (b) => b },
  ],
  [
    "no finalizer can be added while deleting",
    make(maps, configMap("a", {}, held)),
    { do: `DELETE ${maps}/a`, show: "nothing" },
    {
      do: `PATCH ${maps}/a`,
      type: patchTypes.merge,
      body: { metadata: { finalizers: ["example.com/hold", "example.com/new"] } },
    },
  ],
  [
    "labels can be changed while deleting",
    make(maps, configMap("a", {}, held)),
    { do: `DELETE ${maps}/a`, show: "nothing" },
    {
      do: `PATCH ${maps}/a`,
      type: patchTypes.merge,
      body: { metadata: { labels: { a: "b" } } },
      show: ({ metadata }) => metadata.labels,
    },
  ],
  [
    "a wrong uid is a Conflict",
    make(maps, configMap("a")),
    {
      do: `DELETE ${maps}/a`,
      body: options({ preconditions: { uid: "00000000-0000-4000-8000-000000000000" } }),
      loose: true,
    },
  ],
  [
    "a wrong version is a Conflict",
    make(maps, configMap("a")),
    { do: `DELETE ${maps}/a`, body: options({ preconditions: { resourceVersion: "1" } }), show: (b) => b, loose: true },
  ],
  [
    "foreground sets its finalizer",
    make(maps, configMap("a", {}, held)),
    { do: `DELETE ${maps}/a?propagationPolicy=Foreground`, show: lifeOf },
  ],
  [
    "orphan sets its finalizer",
    make(maps, configMap("a", {}, held)),
    { do: `DELETE ${maps}/a`, body: options({ propagationPolicy: "Orphan" }), show: lifeOf },
  ],
  [
    "background sets none",
    make(maps, configMap("a", {}, held)),
    { do: `DELETE ${maps}/a?propagationPolicy=Background`, show: lifeOf },
  ],
  ["an unknown policy is refused", make(maps, configMap("a")), { do: `DELETE ${maps}/a?propagationPolicy=Never` }],
  [
    "orphanDependents and policy together are refused",
    make(maps, configMap("a")),
    { do: `DELETE ${maps}/a`, body: options({ propagationPolicy: "Background", orphanDependents: true }) },
  ],
  [
    "a dry run deletes nothing",
    make(maps, configMap("a")),
    { do: `DELETE ${maps}/a?dryRun=All` },
    { do: `GET ${maps}/a`, show: ({ kind }) => kind },
  ],
  [
    "a pending Pod goes at once",
    make(at.pods, pod("a")),
    { do: `DELETE ${at.pods}/a`, show: lifeOf },
    { do: `GET ${at.pods}/a` },
  ],
  [
    "a bound Pod gets its grace period",
    node,
    make(at.pods, pod("a", { nodeName: "$U", terminationGracePeriodSeconds: 7 }, held)),
    { do: `DELETE ${at.pods}/a`, show: lifeOf },
    gone,
  ],
  [
    "a grace period of the caller counts",
    node,
    make(at.pods, pod("a", { nodeName: "$U" }, held)),
    { do: `DELETE ${at.pods}/a?gracePeriodSeconds=3`, show: lifeOf },
    gone,
  ],
  [
    "a grace period may only shrink",
    node,
    make(at.pods, pod("a", { nodeName: "$U" }, held)),
    { do: `DELETE ${at.pods}/a?gracePeriodSeconds=9`, show: "nothing" },
    { do: `DELETE ${at.pods}/a?gracePeriodSeconds=20`, show: lifeOf },
    { do: `DELETE ${at.pods}/a?gracePeriodSeconds=2`, show: lifeOf },
    gone,
  ],
  [
    "a bound Pod goes at once with grace zero",
    node,
    make(at.pods, pod("a", { nodeName: "$U" })),
    { do: `DELETE ${at.pods}/a?gracePeriodSeconds=0`, show: lifeOf },
    { do: `GET ${at.pods}/a`, show: ({ reason }) => reason },
    gone,
  ],
  [
    "a negative grace period is refused",
    node,
    make(at.pods, pod("a", { nodeName: "$U" })),
    { do: `DELETE ${at.pods}/a?gracePeriodSeconds=-5`, show: lifeOf },
    gone,
  ],
  [
    "a collection is deleted",
    make(at.widgets, widget("a")),
    make(at.widgets, widget("b")),
    { do: `DELETE ${at.widgets}`, show: ({ kind }) => kind },
    { do: `GET ${at.widgets}`, show: ({ items }) => items },
  ],
  [
    "a collection is deleted by label",
    make(at.widgets, widget("a", {}, { labels: { go: "1" } })),
    make(at.widgets, widget("b")),
    { do: `DELETE ${at.widgets}?labelSelector=go`, show: "nothing" },
    { do: `GET ${at.widgets}`, show: ({ items }) => items.map((item: Json) => item.metadata.name) },
  ],
  [
    "a Sandbox with a finalizer",
    make(at.sandboxes, sandbox("a", {}, held)),
    { do: `DELETE ${at.sandboxes}/a`, show: lifeOf },
  ],
  ["broken options are refused", make(maps, configMap("a")), { do: `DELETE ${maps}/a`, body: "{", loose: true }],
];

async function family(c: CaseContext): Promise<string> {
  const path = inNamespace(maps, await c.namespace());
  const { metadata } = await c.create(path, configMap("parent"));
  const owner = { apiVersion: "v1", kind: "ConfigMap", name: "parent", uid: metadata.uid, blockOwnerDeletion: true };
  await c.create(path, configMap("child", {}, { ownerReferences: [owner] }));
  return path;
}

const isGone = (c: CaseContext, path: string) => async () => (await c.api.call("GET", path)).status === 404;

const coded = [
  kase("background collects the children", async (c) => {
    const path = await family(c);
    await c.api.call("DELETE", `${path}/parent?propagationPolicy=Background`);
    await c.eventually(isGone(c, `${path}/child`));
  }),
  kase("foreground collects the children first", async (c) => {
    const path = await family(c);
    await c.api.call("PATCH", `${path}/child`, {
      type: patchTypes.merge,
      body: { metadata: { finalizers: ["example.com/hold"] } },
    });
    await c.api.call("DELETE", `${path}/parent?propagationPolicy=Foreground`);
    await c.eventually(async () => (await c.get(`${path}/child`)).metadata.deletionTimestamp !== undefined);
    expect((await c.get(`${path}/parent`)).metadata.finalizers).toEqual(["foregroundDeletion"]);
    await c.api.call("PATCH", `${path}/child`, { type: patchTypes.merge, body: { metadata: { finalizers: null } } });
    await c.eventually(isGone(c, `${path}/parent`));
  }),
  kase("orphan leaves the children", async (c) => {
    const path = await family(c);
    await c.api.call("DELETE", `${path}/parent?propagationPolicy=Orphan`);
    await c.eventually(isGone(c, `${path}/parent`));
    expect((await c.get(`${path}/child`)).metadata.ownerReferences).toBeUndefined();
  }),
  kase("a child of nobody is collected", async (c) => {
    const path = inNamespace(maps, await c.namespace());
    const owner = { apiVersion: "v1", kind: "ConfigMap", name: "never", uid: "00000000-0000-4000-8000-000000000000" };
    await c.create(path, configMap("child", {}, { ownerReferences: [owner] }));
    await c.eventually(isGone(c, `${path}/child`));
  }),
  kase("the right uid and version are accepted", async (c) => {
    const path = inNamespace(maps, await c.namespace());
    const { metadata } = await c.create(path, configMap("a"));
    const body = options({ preconditions: { uid: metadata.uid, resourceVersion: metadata.resourceVersion } });
    expect((await c.api.call("DELETE", `${path}/a`, { body })).status).toBe(200);
  }),
];

/** Deletion: finalizers, policies, preconditions, grace. */
export const deletion: Group = {
  name: "deletion",
  cases: [...scripted("deletion", scripts), ...coded],
  breakage: (request, answer) =>
    request.method === "DELETE" && answer.status === 409 ? { ...answer, status: 200 } : answer,
};
