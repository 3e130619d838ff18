import { expect, test } from "vitest";
import { uidOf } from "./meta.ts";
import { keyOf } from "./object-key.ts";
import { apiVersionOf, nodes, parseApiVersion, pathOf, pods, sandboxes } from "./resource.ts";

test("pathOf: core and named groups, with and without scope and name", () => {
  expect(pathOf(pods, { namespace: "a", name: "b" })).toBe("/api/v1/namespaces/a/pods/b");
  expect(pathOf(sandboxes)).toBe("/apis/agents.x-k8s.io/v1beta1/sandboxes");
  expect(pathOf(nodes, { name: "x/y" })).toBe("/api/v1/nodes/x%2Fy");
});

test("parseApiVersion: is the inverse of apiVersionOf", () => {
  for (const resource of [pods, sandboxes]) {
    expect(parseApiVersion(apiVersionOf(resource))).toEqual({ group: resource.group, version: resource.version });
  }
});

test("keyOf: has no slash for a cluster-scoped object", () => {
  expect(keyOf({ metadata: { name: "a", namespace: "n" } })).toBe("n/a");
  expect(keyOf({ metadata: { name: "a" } })).toBe("a");
  expect(() => uidOf({ metadata: { name: "a" } })).toThrow("never stored");
});
