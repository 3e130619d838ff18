import { expect } from "vitest";
import type { Json } from "../api-call.ts";
import { patchTypes } from "../api-call.ts";
import { at, widget } from "../objects.ts";
import { type Script, scripted } from "../scripted.ts";
import { type CaseContext, type Group, kase } from "../suite.ts";

const specOf = ({ spec }: Json): Json => spec;

function definition(schema: Json, change: Json = {}): Json {
  const spec = {
    group: "$U.test",
    scope: "Namespaced",
    names: { plural: "things", kind: "Thing" },
    versions: [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: schema } }],
    ...change,
  };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: "things.$U.test" },
    spec,
  };
}

const object = (properties: Json = {}, rest: Json = {}): Json => ({ type: "object", properties, ...rest });
const inSpec = (schema: Json): Json => object({ spec: object({ x: schema }) });

const quadratic = { rule: "self.all(x, self.all(y, x == y))" };

const badSchemas: readonly (readonly [title: string, body: Json])[] = [
  ["a schema without a type", definition({ properties: { spec: {} } })],
  ["a property without a type", definition(inSpec({}))],
  ["a name that does not match", { ...definition(object()), metadata: { name: "others.$U.test" } }],
  [
    "two storage versions",
    definition(object(), {
      versions: ["v1", "v2"].map((name) => ({
        name,
        served: true,
        storage: true,
        schema: { openAPIV3Schema: object() },
      })),
    }),
  ],
  [
    "no storage version",
    definition(object(), {
      versions: [{ name: "v1", served: true, storage: false, schema: { openAPIV3Schema: object() } }],
    }),
  ],
  ["no schema", definition(object(), { versions: [{ name: "v1", served: true, storage: true }] })],
  ["an unknown scope", definition(object(), { scope: "Galaxy" })],
  ["a default that does not fit", definition(inSpec({ type: "integer", default: "x" }))],
  [
    "properties and additionalProperties",
    definition(
      inSpec({ type: "object", properties: { a: { type: "string" } }, additionalProperties: { type: "string" } }),
    ),
  ],
  [
    "a list map without keys",
    definition(inSpec({ type: "array", "x-kubernetes-list-type": "map", items: object({ a: { type: "string" } }) })),
  ],
  ["items missing", definition(inSpec({ type: "array" }))],
  ["a type inside allOf", definition(inSpec({ type: "object", allOf: [{ type: "object" }] }))],
  [
    "a rule that does not compile",
    definition(inSpec({ type: "string", "x-kubernetes-validations": [{ rule: "self.nothing()" }] })),
  ],
  [
    "a rule of the wrong type",
    definition(inSpec({ type: "string", "x-kubernetes-validations": [{ rule: "self + 'x'" }] })),
  ],
  [
    "a rule on a field that is not there",
    definition(inSpec(object({ a: { type: "string" } }, { "x-kubernetes-validations": [{ rule: "self.b == 'x'" }] }))),
  ],
  [
    "a rule that may cost too much",
    definition(inSpec({ type: "array", items: { type: "string" }, "x-kubernetes-validations": [quadratic] })),
  ],
  [
    "a rule that may be run too often",
    definition(
      inSpec({
        type: "array",
        items: { type: "string", "x-kubernetes-validations": [{ rule: "self.contains('abcdefghijk')" }] },
      }),
    ),
  ],
  [
    "a rule a little too dear",
    definition(
      inSpec({
        type: "array",
        maxItems: 1200,
        items: { type: "string", maxLength: 30 },
        "x-kubernetes-validations": [quadratic],
      }),
    ),
  ],
  ["a rule without text", definition(inSpec({ type: "string", "x-kubernetes-validations": [{ rule: "" }] }))],
  ["a bad pattern", definition(inSpec({ type: "string", pattern: "(" }))],
  ["an empty group", definition(object(), { group: "" })],
  ["a bad plural", definition(object(), { names: { plural: "Things", kind: "Thing" } })],
];

const scripts: Script[] = [
  [
    "unknown fields are pruned",
    {
      do: `POST ${at.widgets}`,
      body: { ...widget("a", { size: 1, unknown: 2, nested: { must: "x", extra: 1 } }), extra: 1 },
    },
  ],
  [
    "unknown fields of an open object stay",
    { do: `POST ${at.widgets}`, body: widget("a", { open: { anything: { deep: [1] } } }), show: specOf },
  ],
  ["defaults are set", { do: `POST ${at.widgets}`, body: widget("a", {}), show: specOf }],
  [
    "defaults are set in list items",
    { do: `POST ${at.widgets}`, body: widget("a", { parts: [{ name: "p" }] }), show: specOf },
  ],
  ["defaults replace null", { do: `POST ${at.widgets}`, body: widget("a", { mode: null }), show: specOf }],
  [
    "defaults are not set over a value",
    { do: `POST ${at.widgets}`, body: widget("a", { mode: "manual", nested: { must: "m" } }), show: specOf },
  ],
  [
    "an int-or-string keeps both forms",
    { do: `POST ${at.widgets}`, body: widget("a", { port: "http" }), show: specOf },
    { do: `PATCH ${at.widgets}/a`, type: patchTypes.merge, body: { spec: { port: 80 } }, show: specOf },
  ],
  [
    "an embedded object keeps its fields",
    {
      do: `POST ${at.widgets}`,
      body: widget("a", {
        embedded: { apiVersion: "v1", kind: "Pod", metadata: { name: "x", nonsense: 1 }, spec: { a: 1 } },
      }),
      show: specOf,
    },
  ],
  [
    "large integers survive",
    {
      do: `POST ${at.widgets}`,
      body: '{"apiVersion":"conformance.test/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"open":{"big":9007199254740993}}}',
      show: () => "made",
    },
  ],
  ["a wrong kind is refused", { do: `POST ${at.widgets}`, body: { ...widget("a"), kind: "Gadget" } }],
  [
    "a wrong version is refused",
    { do: `POST ${at.widgets}`, body: { ...widget("a"), apiVersion: "conformance.test/v2" } },
  ],
  [
    "metadata of the wrong type is refused",
    { do: `POST ${at.widgets}`, body: { ...widget("a"), metadata: { name: "a", labels: "x" } } },
  ],
  ...badSchemas.map(
    ([title, body]): Script => [
      `definition: ${title}`,
      { do: `POST ${at.crds}`, body, loose: /storage version|compile|wrong type|not there/.test(title) },
    ],
  ),
  [
    "definition: dry run is accepted",
    { do: `POST ${at.crds}?dryRun=All`, body: definition(object()), show: ({ spec }) => spec },
  ],
];

async function define(c: CaseContext, schema: Json, change: Json = {}): Promise<string> {
  const word = c.unique("g");
  const text = JSON.stringify(definition(schema, change)).replaceAll("$U", word);
  await c.create(at.crds, JSON.parse(text));
  await c.eventually(async () => (await c.api.call("GET", `/apis/${word}.test/v1/things`)).status === 200);
  return word;
}

const coded = [
  kase("a definition becomes Established", async (c) => {
    const word = await define(c, object());
    const { status } = await c.get(`${at.crds}/things.${word}.test`);
    const conditions = Object.fromEntries(
      status.conditions.map((each: Json) => [each.type, `${each.status} ${each.reason}`]),
    );
    expect(conditions).toMatchObject({ NamesAccepted: "True NoConflicts", Established: "True InitialNamesAccepted" });
    expect(status.acceptedNames).toEqual({ plural: "things", singular: "thing", kind: "Thing", listKind: "ThingList" });
    expect(status.storedVersions).toEqual(["v1"]);
    await c.api.call("DELETE", `${at.crds}/things.${word}.test`);
  }),
  kase("deleting a definition deletes its objects and path", async (c) => {
    const word = await define(c, object());
    const ns = await c.namespace();
    const path = `/apis/${word}.test/v1/namespaces/${ns}/things`;
    await c.create(path, { apiVersion: `${word}.test/v1`, kind: "Thing", metadata: { name: "a" } });
    await c.api.call("DELETE", `${at.crds}/things.${word}.test`);
    await c.eventually(async () => (await c.api.call("GET", path)).status === 404);
    await c.eventually(async () => (await c.api.call("GET", `${at.crds}/things.${word}.test`)).status === 404);
  }),
  kase("a changed schema counts at once", async (c) => {
    const word = await define(c, object({ spec: object({ n: { type: "integer" } }) }));
    const ns = await c.namespace();
    const body = (name: string) => ({
      apiVersion: `${word}.test/v1`,
      kind: "Thing",
      metadata: { name },
      spec: { n: 5 },
    });
    await c.create(`/apis/${word}.test/v1/namespaces/${ns}/things`, body("a"));
    const patch = [
      { op: "add", path: "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/n/maximum", value: 3 },
    ];
    await c.api.call("PATCH", `${at.crds}/things.${word}.test`, { type: patchTypes.json, body: patch });
    let index = 0;
    await c.eventually(
      async () =>
        (await c.api.call("POST", `/apis/${word}.test/v1/namespaces/${ns}/things`, { body: body(`b${index++}`) }))
          .status === 422,
    );
    await c.api.call("DELETE", `${at.crds}/things.${word}.test`);
  }),
  kase("a cluster-scoped kind has no namespace", async (c) => {
    const word = await define(c, object(), { scope: "Cluster" });
    const made = await c.create(`/apis/${word}.test/v1/things`, {
      apiVersion: `${word}.test/v1`,
      kind: "Thing",
      metadata: { name: "a" },
    });
    expect(made.metadata.namespace).toBeUndefined();
    expect((await c.api.call("GET", `/apis/${word}.test/v1/namespaces/default/things`)).status).toBe(404);
    await c.api.call("DELETE", `${at.crds}/things.${word}.test`);
  }),
  kase("two versions without conversion", async (c) => {
    const versions = [
      ["v1", true],
      ["v2", false],
    ].map(([name, storage]) => ({
      name,
      storage,
      served: true,
      schema: { openAPIV3Schema: object({ spec: object({ n: { type: "integer" } }) }) },
    }));
    const word = await define(c, object(), { versions });
    const ns = await c.namespace();
    await c.create(`/apis/${word}.test/v1/namespaces/${ns}/things`, {
      apiVersion: `${word}.test/v1`,
      kind: "Thing",
      metadata: { name: "a" },
      spec: { n: 1 },
    });
    const second = await c.eventually(async () => {
      const answer = await c.api.call("GET", `/apis/${word}.test/v2/namespaces/${ns}/things/a`);
      return answer.status === 200 ? answer.body : undefined;
    });
    expect([second.apiVersion, second.spec]).toEqual([`${word}.test/v2`, { n: 1 }]);
    await c.api.call("DELETE", `${at.crds}/things.${word}.test`);
  }),
  kase("a deprecated version warns", async (c) => {
    const versions = [
      { name: "v1", storage: true, served: true, deprecated: true, schema: { openAPIV3Schema: object() } },
    ];
    const word = await define(c, object(), { versions });
    const { headers } = await c.api.call("GET", `/apis/${word}.test/v1/things`);
    expect(headers["warning"]).toBe(`299 - "${word}.test/v1 Thing is deprecated"`);
    await c.api.call("DELETE", `${at.crds}/things.${word}.test`);
  }),
];

/** CustomResourceDefinitions: pruning, defaults, life. */
export const customKinds: Group = {
  name: "custom-kinds",
  cases: [...scripted("custom-kinds", scripts), ...coded],
  breakage: (request, answer) =>
    request.path.includes("/widgets") && answer.body?.spec !== undefined
      ? { ...answer, body: { ...answer.body, spec: { ...answer.body.spec, unknown: 2 } } }
      : answer,
};
