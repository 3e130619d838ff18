import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { JsonObject } from "./json-value.ts";
import { PatchSchema, type PatchSchemaNode } from "./patch-schema.ts";
import { strategicMergePatch } from "./strategic-merge-patch.ts";

const file = join(import.meta.dirname, "../../../spec/builtin/definitions.json");
const definitions = JSON.parse(readFileSync(file, "utf8")) as Record<string, PatchSchemaNode>;
const podSchema = PatchSchema.of(definitions, "io.k8s.api.core.v1.Pod");
const spec = (fields: JsonObject): JsonObject => ({ spec: fields });
const meta = (fields: JsonObject): JsonObject => ({ metadata: fields });
const containers = (...names: string[]): JsonObject => spec({ containers: names.map((name) => ({ name })) });

test.each<[string, JsonObject, JsonObject, JsonObject]>([
  [
    "merges objects and removes by null",
    meta({ labels: { a: "1", b: "2" } }),
    meta({ labels: { a: null, c: "3" } }),
    meta({ labels: { b: "2", c: "3" } }),
  ],
  [
    "does not keep a null for what is not there",
    {},
    meta({ labels: { a: null, b: "1" } }),
    meta({ labels: { b: "1" } }),
  ],
  [
    "merges containers by name",
    spec({ containers: [{ name: "a", image: "1", env: [{ name: "X", value: "1" }] }, { name: "b" }] }),
    spec({ containers: [{ name: "a", env: [{ name: "Y", value: "2" }] }] }),
    spec({
      containers: [
        {
          name: "a",
          image: "1",
          env: [
            { name: "Y", value: "2" },
            { name: "X", value: "1" },
          ],
        },
        { name: "b" },
      ],
    }),
  ],
  [
    "puts added items first, as the patch orders them",
    containers("a", "b"),
    containers("c", "b"),
    containers("c", "a", "b"),
  ],
  [
    "merges ports by number",
    spec({ containers: [{ name: "a", ports: [{ containerPort: 80 }] }] }),
    spec({ containers: [{ name: "a", ports: [{ containerPort: 80, name: "x" }] }] }),
    spec({ containers: [{ name: "a", ports: [{ containerPort: 80, name: "x" }] }] }),
  ],
  [
    "replaces lists without a merge strategy",
    spec({ tolerations: [{ key: "a" }] }),
    spec({ tolerations: [{ key: "b" }] }),
    spec({ tolerations: [{ key: "b" }] }),
  ],
  ["deletes an item", containers("a", "b"), spec({ containers: [{ name: "a", $patch: "delete" }] }), containers("b")],
  [
    "replaces a list on demand",
    containers("a", "b"),
    spec({ containers: [{ $patch: "replace" }, { name: "c" }] }),
    containers("c"),
  ],
  [
    "replaces an object on demand",
    meta({ labels: { a: "1" } }),
    meta({ labels: { $patch: "replace", b: "2" } }),
    meta({ labels: { b: "2" } }),
  ],
  [
    "empties an object on demand",
    meta({ labels: { a: "1" } }),
    meta({ labels: { $patch: "delete" } }),
    meta({ labels: {} }),
  ],
  [
    "retains only the named keys",
    spec({ volumes: [{ name: "v", hostPath: { path: "/x" } }] }),
    spec({ volumes: [{ name: "v", emptyDir: {}, $retainKeys: ["name", "emptyDir"] }] }),
    spec({ volumes: [{ name: "v", emptyDir: {} }] }),
  ],
  [
    "follows the asked order",
    containers("a", "b", "c"),
    { spec: { "$setElementOrder/containers": [{ name: "c" }, { name: "a" }] } },
    containers("b", "c", "a"),
  ],
  [
    "merges and orders at once",
    containers("a", "b"),
    {
      spec: {
        "$setElementOrder/containers": [{ name: "b" }, { name: "c" }, { name: "a" }],
        containers: [{ name: "c" }],
      },
    },
    containers("b", "c", "a"),
  ],
  [
    "treats finalizers as a set",
    meta({ finalizers: ["a", "b"] }),
    meta({ finalizers: ["b", "c"] }),
    meta({ finalizers: ["a", "b", "c"] }),
  ],
  [
    "deletes from a list of words",
    meta({ finalizers: ["a", "b", "c"] }),
    meta({ "$deleteFromPrimitiveList/finalizers": ["b"] }),
    meta({ finalizers: ["a", "c"] }),
  ],
  [
    "leaves no directive in what it adds",
    {},
    spec({ volumes: [{ name: "v", emptyDir: {}, $retainKeys: ["name", "emptyDir"] }] }),
    spec({ volumes: [{ name: "v", emptyDir: {} }] }),
  ],
  [
    "merges owner references by uid",
    meta({ ownerReferences: [{ uid: "1", name: "a" }] }),
    meta({ ownerReferences: [{ uid: "2", name: "b" }] }),
    meta({
      ownerReferences: [
        { uid: "2", name: "b" },
        { uid: "1", name: "a" },
      ],
    }),
  ],
  ["takes unknown fields as they are", { odd: { list: [1] } }, { odd: { list: [2] } }, { odd: { list: [2] } }],
])("strategicMergePatch: %s", (_what, original, patch, expected) => {
  const before = JSON.stringify([original, patch]);
  expect(strategicMergePatch(original, patch, podSchema)).toEqual(expected);
  expect(JSON.stringify([original, patch])).toBe(before);
});

test.each<[string, JsonObject, JsonObject]>([
  ["an item without its merge key", containers("a"), spec({ containers: [{ image: "x" }] })],
  ["an unknown directive", meta({ labels: { a: "1" } }), meta({ labels: { $patch: "merge" } })],
  [
    "a set key that is not retained",
    spec({ volumes: [{ name: "v" }] }),
    spec({ volumes: [{ name: "v", emptyDir: {}, $retainKeys: ["name"] }] }),
  ],
  [
    "items against the asked order",
    containers("a"),
    {
      spec: {
        "$setElementOrder/containers": [{ name: "b" }, { name: "c" }],
        containers: [{ name: "c" }, { name: "b" }],
      },
    },
  ],
  ["a mixed list", containers("a"), spec({ containers: ["b"] })],
])("strategicMergePatch: refuses %s", (_what, original, patch) => {
  expect(() => strategicMergePatch(original, patch, podSchema)).toThrow(expect.objectContaining({ code: "malformed" }));
});
