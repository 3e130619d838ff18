import type { JsonObject } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { listAt, objectAt } from "../json/json.ts";
import { TestServer } from "../testing/test-server.ts";

const crdsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const widgetsPath = "/apis/example.com/v1/namespaces/default/widgets";

function widgetCrd(spec: JsonObject, version: JsonObject = {}): JsonObject {
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: "widgets.example.com" },
    spec: {
      group: "example.com",
      scope: "Namespaced",
      names: { kind: "Widget", plural: "widgets" },
      versions: [
        {
          name: "v1",
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: "object", properties: { spec } } },
          ...version,
        },
      ],
    },
  };
}

function widget(name: string, spec: JsonObject, metadata: JsonObject = {}): JsonObject {
  return { apiVersion: "example.com/v1", kind: "Widget", metadata: { name, ...metadata }, spec };
}

async function withWidgets(spec: JsonObject, version: JsonObject = {}): Promise<TestServer> {
  const server = new TestServer();
  const { status, text } = await server.call("POST", crdsPath, { body: widgetCrd(spec, version) });
  expect(status, text).toBe(201);
  return server;
}

test("CRD: is established at once and its kind is in discovery", async () => {
  await using server = await withWidgets({ type: "object", "x-kubernetes-preserve-unknown-fields": true });
  const { body } = await server.call("GET", `${crdsPath}/widgets.example.com`);
  const conditions = listAt(objectAt(body, "status"), "conditions") as JsonObject[];
  expect(conditions.map(({ type, status }) => [type, status])).toEqual([
    ["NamesAccepted", "True"],
    ["Established", "True"],
  ]);
  const discovery = await server.call("GET", "/apis/example.com/v1");
  expect(listAt(discovery.body, "resources")).toMatchObject([{ name: "widgets", kind: "Widget", namespaced: true }]);
});

test("CRD: one whose names clash is stored and not served, and can be deleted", async () => {
  await using server = await withWidgets({ type: "object", "x-kubernetes-preserve-unknown-fields": true });
  const rival = widgetCrd({ type: "object" });
  const spec = objectAt(rival, "spec") ?? {};
  spec["names"] = { kind: "Widget", plural: "gadgets", singular: "widget", shortNames: ["gd"] };
  Object.assign(rival, { metadata: { name: "gadgets.example.com" } });
  const { body, status } = await server.call("POST", crdsPath, { body: rival });
  expect(status).toBe(201);
  expect(body["status"]).toMatchObject({
    acceptedNames: { plural: "gadgets", shortNames: ["gd"] },
    conditions: [
      { type: "NamesAccepted", status: "False", reason: "ListKindConflict", message: '"WidgetList" is already in use' },
      { type: "Established", status: "False", reason: "NotAccepted", message: "not all names are accepted" },
    ],
  });
  expect((await server.call("GET", "/apis/example.com/v1/namespaces/default/gadgets")).status).toBe(404);
  expect((await server.call("GET", widgetsPath)).status).toBe(200);
  await server.call("DELETE", `${crdsPath}/gadgets.example.com`);
  await new Promise((resolve) => setImmediate(resolve));
  expect((await server.call("GET", `${crdsPath}/gadgets.example.com`)).status).toBe(404);
});

test("CRD: a schema that is not structural is refused", async () => {
  await using server = new TestServer();
  const { status, body } = await server.call("POST", crdsPath, {
    body: widgetCrd({ properties: { a: { type: "string" } } }),
  });
  expect(status).toBe(422);
  expect(body["message"]).toContain("must not be empty for specified object fields");
});

test("CRD: deleting it deletes its objects first, and waits for their finalizers", async () => {
  await using server = await withWidgets({ type: "object", "x-kubernetes-preserve-unknown-fields": true });
  await server.call("POST", widgetsPath, { body: widget("a", {}) });
  await server.call("POST", widgetsPath, { body: widget("b", {}, { finalizers: ["example.com/wait"] }) });
  await server.call("DELETE", `${crdsPath}/widgets.example.com`);
  await expect.poll(async () => (await server.call("GET", `${widgetsPath}/a`)).status).toBe(404);
  expect((await server.call("GET", `${crdsPath}/widgets.example.com`)).status).toBe(200);
  await server.call("PATCH", `${widgetsPath}/b`, {
    type: "application/merge-patch+json",
    body: { metadata: { finalizers: null } },
  });
  await expect.poll(async () => (await server.call("GET", `${crdsPath}/widgets.example.com`)).status).toBe(404);
  expect((await server.call("GET", widgetsPath)).status).toBe(404);
});

const sized: JsonObject = {
  type: "object",
  required: ["size"],
  properties: {
    size: { type: "integer", minimum: 1, maximum: 9 },
    colour: { type: "string", enum: ["red", "blue"], default: "red" },
    name: { type: "string", maxLength: 5, pattern: "^[a-z]+$" },
    port: { "x-kubernetes-int-or-string": true },
    tags: { type: "array", maxItems: 2, items: { type: "string" }, "x-kubernetes-list-type": "set" },
    note: { type: "string", nullable: true },
  },
};

test.each([
  ["a missing field", {}, "spec.size: Required value"],
  [
    "a wrong type",
    { size: "big" },
    'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"',
  ],
  [
    "a small number",
    { size: 0 },
    "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
  ],
  ["a large number", { size: 10 }, "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"],
  [
    "a value outside the enum",
    { size: 1, colour: "green" },
    'spec.colour: Unsupported value: "green": supported values: "red", "blue"',
  ],
  ["a long string", { size: 1, name: "abcdef" }, "spec.name: Too long: may not be more than 5 bytes"],
  [
    "a string outside the pattern",
    { size: 1, name: "A" },
    "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'",
  ],
  ["too many items", { size: 1, tags: ["a", "b", "c"] }, "spec.tags: Too many: 3: must have at most 2 items"],
  ["a set with duplicates", { size: 1, tags: ["a", "a"] }, 'spec.tags[1]: Duplicate value: "a"'],
  [
    "a fractional int-or-string",
    { size: 1, port: true },
    'spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"',
  ],
])("schema: %s is told in Kubernetes' words", async (_what, spec, message) => {
  await using server = await withWidgets(sized);
  const { status, body } = await server.call("POST", widgetsPath, { body: widget("w", spec) });
  expect(status).toBe(422);
  expect(body["message"]).toBe(`Widget.example.com "w" is invalid: ${message}`);
});

test("schema: defaults fill in, and a null counts as absent unless the field is nullable", async () => {
  await using server = await withWidgets(sized);
  const { body } = await server.call("POST", widgetsPath, {
    body: widget("w", { size: 1, colour: null, note: null, name: null }),
  });
  expect(body["spec"]).toEqual({ size: 1, colour: "red", note: null });
});

test("scale: reads and writes the replica count through the paths of the CRD", async () => {
  const scale = {
    specReplicasPath: ".spec.replicas",
    statusReplicasPath: ".status.replicas",
    labelSelectorPath: ".status.selector",
  };
  const spec = { type: "object", properties: { replicas: { type: "integer" } } };
  await using server = await withWidgets(spec, { subresources: { status: {}, scale } });
  await server.call("POST", widgetsPath, { body: widget("w", { replicas: 1 }) });
  const { body } = await server.call("GET", `${widgetsPath}/w/scale`);
  expect(body).toMatchObject({
    kind: "Scale",
    apiVersion: "autoscaling/v1",
    spec: { replicas: 1 },
    status: { replicas: 0 },
  });
  const patched = await server.call("PATCH", `${widgetsPath}/w/scale`, {
    type: "application/merge-patch+json",
    body: { spec: { replicas: 4 } },
  });
  expect(patched.body).toMatchObject({ spec: { replicas: 4 } });
  expect((await server.call("GET", `${widgetsPath}/w`)).body).toMatchObject({
    spec: { replicas: 4 },
    metadata: { generation: 2 },
  });
});

const ruled: JsonObject = {
  type: "object",
  "x-kubernetes-validations": [
    { rule: "self.min <= self.max", message: "min must not be above max" },
    { rule: "self.min == oldSelf.min", message: "min is immutable" },
    {
      rule: "!has(self.size) || quantity(self.size).isLessThan(quantity('1Gi'))",
      messageExpression: "'size ' + self.size + ' is too much'",
      fieldPath: ".size",
    },
  ],
  properties: {
    min: { type: "integer" },
    max: { type: "integer" },
    size: { type: "string" },
    words: { type: "array", items: { type: "string", "x-kubernetes-validations": [{ rule: "self.startsWith('x')" }] } },
  },
};

test.each([
  [{ min: 3, max: 1 }, "spec: Invalid value: min must not be above max"],
  [{ min: 1, max: 1, size: "2Gi" }, "spec.size: Invalid value: size 2Gi is too much"],
  [{ min: 1, max: 2, words: ["xa", "b"] }, "spec.words[1]: Invalid value: \"b\": failed rule: self.startsWith('x')"],
])("rules: %j is refused", async (spec, message) => {
  await using server = await withWidgets(ruled);
  const { status, body } = await server.call("POST", widgetsPath, { body: widget("w", spec) });
  expect(status).toBe(422);
  expect(body["message"]).toBe(`Widget.example.com "w" is invalid: ${message}`);
});

test("rules: a transition rule sees the old value, and only on update", async () => {
  await using server = await withWidgets(ruled);
  expect((await server.call("POST", widgetsPath, { body: widget("w", { min: 1, max: 2 }) })).status).toBe(201);
  const patch = (spec: JsonObject) =>
    server.call("PATCH", `${widgetsPath}/w`, { type: "application/merge-patch+json", body: { spec } });
  expect((await patch({ max: 3 })).status).toBe(200);
  const refused = await patch({ min: 2 });
  expect(refused.body["message"]).toBe('Widget.example.com "w" is invalid: spec: Invalid value: min is immutable');
});

test("rules: an expression that costs too much is cut off and told", async () => {
  // Affordable by its bounds, and yet dearer than one evaluation may be.
  const rule = "self.all(a, self.all(b, self.exists(c, c == 'last')))";
  const bounds = { maxItems: 110, items: { type: "string", maxLength: 10 } };
  const list = { type: "array", ...bounds, "x-kubernetes-validations": [{ rule }] };
  await using server = await withWidgets({ type: "object", properties: { list } });
  const items = Array.from({ length: 110 }, (_unused, index) => (index === 109 ? "last" : `item-${index}`));
  const { status, body } = await server.call("POST", widgetsPath, { body: widget("w", { list: items }) });
  expect(status).toBe(422);
  expect(body["message"]).toContain("call cost exceeds limit for rule");
});
