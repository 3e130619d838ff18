import { expect, test } from "vitest";
import type { KubeObject, OwnerReference } from "./meta.ts";
import { controllerOf, groupKindOf, isControlledBy, refersTo, withControllerReference } from "./owner-reference.ts";

const owner: KubeObject = {
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: { name: "a", uid: "u1" },
};
const reference = (rest: Partial<OwnerReference> = {}): OwnerReference => ({
  apiVersion: "agents.x-k8s.io/v1alpha1",
  kind: "Sandbox",
  name: "a",
  uid: "u0",
  ...rest,
});

test("isControlledBy: the uid decides, not the name", () => {
  const owned = (ref: OwnerReference) => ({ metadata: { name: "x", ownerReferences: [ref] } });
  expect(isControlledBy(owned(reference({ uid: "u1", controller: true })), owner)).toBe(true);
  expect(isControlledBy(owned(reference({ controller: true })), owner)).toBe(false);
  expect(isControlledBy(owned(reference({ uid: "u1" })), owner)).toBe(false);
  expect(isControlledBy(owned(reference({ uid: "", controller: true })), { metadata: { name: "a", uid: "" } })).toBe(
    false,
  );
  expect(controllerOf(owned(reference()))).toBeUndefined();
});

test("refersTo: versions are ignored and nothing matches an absent reference", () => {
  expect(refersTo(reference(), { group: "agents.x-k8s.io", kind: "Sandbox" })).toBe(true);
  expect(refersTo(reference(), { group: "", kind: "Sandbox" })).toBe(false);
  expect(groupKindOf(undefined)).toEqual({ group: "", kind: "" });
  expect(refersTo(undefined, { group: "", kind: "" })).toBe(false);
});

test("withControllerReference: replaces the entry of the same name and keeps the others", () => {
  const other = reference({ apiVersion: "v1", kind: "ConfigMap", name: "c" });
  const result = withControllerReference([other, reference()], owner);
  expect(result).toEqual([
    other,
    {
      apiVersion: "agents.x-k8s.io/v1beta1",
      kind: "Sandbox",
      name: "a",
      uid: "u1",
      controller: true,
      blockOwnerDeletion: true,
    },
  ]);
  expect(() => withControllerReference([reference({ name: "b", controller: true })], owner)).toThrow(
    "controller already",
  );
});
