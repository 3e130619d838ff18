import { expect } from "vitest";
import type { Json } from "../api-call.ts";
import { at, configMap, inNamespace, pod, widget } from "../objects.ts";
import { type Script, scripted } from "../scripted.ts";
import { type CaseContext, type Group, kase, table } from "../suite.ts";

const maps = at.configMaps;
const names = (list: Json): string[] => list.items.map((item: Json) => item.metadata.name);

const scripts: Script[] = [
  ["an empty list", { do: `GET ${at.widgets}` }],
  [
    "a list of objects has no kind in its items",
    { do: `POST ${at.secrets}`, body: { apiVersion: "v1", kind: "Secret", metadata: { name: "a" } }, show: "nothing" },
    { do: `GET ${at.secrets}` },
  ],
  [
    "a list of custom objects has the kind in its items",
    { do: `POST ${at.widgets}`, body: widget("a"), show: "nothing" },
    { do: `GET ${at.widgets}` },
  ],
  ["a bad label selector is refused", { do: `GET ${maps}?labelSelector=a%20b%20c`, loose: true }],
  ["a bad field selector is refused", { do: `GET ${maps}?fieldSelector=data.x%3D1`, loose: true }],
  ["a bad field selector of a custom kind is refused", { do: `GET ${at.widgets}?fieldSelector=spec.nothing%3D1` }],
  ["a bad limit is refused", { do: `GET ${maps}?limit=abc`, loose: true }],
  ["a bad continue token is refused", { do: `GET ${maps}?limit=1&continue=nonsense`, loose: true }],
  ["a version with continue is refused", { do: `GET ${maps}?continue=abc&resourceVersion=5`, loose: true }],
  ["resourceVersionMatch without a version is refused", { do: `GET ${maps}?resourceVersionMatch=Exact` }],
  ["an unknown resourceVersionMatch is refused", { do: `GET ${maps}?resourceVersionMatch=Some&resourceVersion=5` }],
  ["Exact at zero is refused", { do: `GET ${maps}?resourceVersionMatch=Exact&resourceVersion=0` }],
  ["an unparsable version is refused", { do: `GET ${maps}?resourceVersion=abc`, loose: true }],
  [
    "a list in a missing namespace is empty",
    { do: "GET /api/v1/namespaces/none-$U/configmaps", show: ({ items }) => items },
  ],
];

async function three(c: CaseContext): Promise<string> {
  const path = inNamespace(maps, await c.namespace());
  const labels = [{ app: "x", tier: "1" }, { app: "y", tier: "2" }, { app: "x" }];
  for (const [index, each] of labels.entries()) await c.create(path, configMap(`m${index}`, {}, { labels: each }));
  return path;
}

const selectors = table<[selector: string, expected: string[]]>(
  [
    ["label equality", "app=x", ["m0", "m2"]],
    ["label equality with two signs", "app==y", ["m1"]],
    ["label inequality", "app!=x,app", ["m1"]],
    ["label in a set", "tier in (1,2)", ["m0", "m1"]],
    ["label not in a set", "tier notin (1),app", ["m1", "m2"]],
    ["label exists", "tier", ["m0", "m1"]],
    ["label does not exist", "!tier,app", ["m2"]],
    ["label with several requirements", "app=x,tier=1", ["m0"]],
    ["label greater than", "tier>1", ["m1"]],
    ["label less than", "tier<2", ["m0"]],
    ["label that nobody has", "app=z", []],
  ],
  async (c, selector, expected) => {
    const path = await three(c);
    expect(names(await c.get(`${path}?labelSelector=${encodeURIComponent(selector)}`))).toEqual(expected);
  },
);

const fieldSelectors = table<[selector: string, expected: string[]]>(
  [
    ["field metadata.name", "metadata.name=m1", ["m1"]],
    ["field metadata.name unequal", "metadata.name!=m1,metadata.name!=kube-root-ca.crt", ["m0", "m2"]],
  ],
  async (c, selector, expected) => {
    const path = await three(c);
    expect(names(await c.get(`${path}?fieldSelector=${encodeURIComponent(selector)}`))).toEqual(expected);
  },
);

const podFields = table<[selector: string, expected: string[]]>(
  [
    ["field status.phase of pods", "status.phase=Pending", ["p"]],
    ["field spec.nodeName of pods", "spec.nodeName=", ["p"]],
    ["field spec.serviceAccountName of pods", "spec.serviceAccountName=default", ["p"]],
    ["field status.phase that none has", "status.phase!=Pending", []],
  ],
  async (c, selector, expected) => {
    const path = inNamespace(at.pods, await c.namespace());
    await c.create(path, pod("p"));
    expect(names(await c.get(`${path}?fieldSelector=${encodeURIComponent(selector)}`))).toEqual(expected);
  },
);

const paging = [
  kase("pages join to the whole", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    for (let index = 0; index < 7; index++) await c.create(path, widget(`w${index}`));
    const seen: string[] = [];
    let token = "";
    const versions = new Set<string>();
    do {
      const list = await c.get(`${path}?limit=3${token === "" ? "" : `&continue=${encodeURIComponent(token)}`}`);
      seen.push(...names(list));
      versions.add(list.metadata.resourceVersion);
      token = list.metadata.continue ?? "";
    } while (token !== "");
    expect(seen).toEqual(["w0", "w1", "w2", "w3", "w4", "w5", "w6"]);
    expect(versions.size).toBe(1);
  }),
  kase("a page tells how many remain", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    for (let index = 0; index < 5; index++) await c.create(path, widget(`w${index}`));
    const { metadata } = await c.get(`${path}?limit=2`);
    expect(metadata.remainingItemCount).toBe(3);
  }),
  kase("a page under a selector does not tell how many remain", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    for (let index = 0; index < 3; index++) await c.create(path, widget(`w${index}`, {}, { labels: { a: "b" } }));
    const { metadata } = await c.get(`${path}?limit=2&labelSelector=a`);
    expect(metadata.remainingItemCount).toBeUndefined();
    expect(metadata.continue).toBeTruthy();
  }),
  kase("pages are of one moment", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    for (const name of ["a", "c"]) await c.create(path, widget(name));
    const first = await c.get(`${path}?limit=1`);
    await c.create(path, widget("b"));
    const second = await c.get(`${path}?limit=5&continue=${encodeURIComponent(first.metadata.continue)}`);
    expect([...names(first), ...names(second)]).toEqual(["a", "c"]);
  }),
  kase("Exact gives the state of that version", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const { metadata } = await c.create(path, widget("a"));
    await c.create(path, widget("b"));
    const list = await c.get(`${path}?resourceVersion=${metadata.resourceVersion}&resourceVersionMatch=Exact`);
    expect(names(list)).toEqual(["a"]);
    expect(list.metadata.resourceVersion).toBe(metadata.resourceVersion);
  }),
  kase("NotOlderThan gives at least that version", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const { metadata } = await c.create(path, widget("a"));
    const list = await c.get(`${path}?resourceVersion=${metadata.resourceVersion}&resourceVersionMatch=NotOlderThan`);
    expect(names(list)).toEqual(["a"]);
  }),
  kase("a list across namespaces", async (c) => {
    const [one, two] = [await c.namespace(), await c.namespace()];
    const label = c.unique("l");
    for (const ns of [one, two])
      await c.create(inNamespace(maps, ns), configMap("same", {}, { labels: { suite: label } }));
    const list = await c.get(`/api/v1/configmaps?labelSelector=suite%3D${label}`);
    expect(list.items.map((item: Json) => item.metadata.namespace).sort()).toEqual([one, two].sort());
  }),
  kase("a list is ordered by name", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    for (const name of ["b", "a", "c-1", "c"]) await c.create(path, widget(name));
    expect(names(await c.get(path))).toEqual(["a", "b", "c", "c-1"]);
  }),
  kase("a selectable field of a custom kind", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    await c.create(path, widget("a", { color: "red" }));
    await c.create(path, widget("b", { color: "blue" }));
    expect(names(await c.get(`${path}?fieldSelector=spec.color%3Dred`))).toEqual(["a"]);
  }),
];

/** Lists: selectors, pages, versions. */
export const lists: Group = {
  name: "lists",
  cases: [...scripted("lists", scripts), ...selectors, ...fieldSelectors, ...podFields, ...paging],
  breakage: (request, answer) =>
    request.method === "GET" && Array.isArray(answer.body?.items)
      ? { ...answer, body: { ...answer.body, items: answer.body.items.slice(1) } }
      : answer,
};
