import { expect, test } from "vitest";
import type { Sandbox } from "./kinds.gen.ts";
import type { ObjectMeta, OwnerReference } from "./meta.ts";
import { controllerOf, isControlledBy, ownershipOf, podOwnerOf, refersTo, withReference } from "./ownership.ts";
import { sandboxes } from "./resource.ts";

const owner = (podUID?: string): Sandbox => ({
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: { name: "a", namespace: "n", uid: "u1" },
  spec: { podTemplate: { spec: { containers: [] } } },
  ...(podUID === undefined ? {} : { status: { podUID } }),
});

const reference = (rest: Partial<OwnerReference> = {}): OwnerReference => ({
  apiVersion: "agents.x-k8s.io/v1alpha1",
  kind: "Sandbox",
  name: "a",
  uid: "u1",
  controller: true,
  ...rest,
});

const child = (rest: Partial<OwnerReference> = {}, metadata: Partial<ObjectMeta> = {}) => ({
  metadata: { name: "x", namespace: "n", uid: "p1", ownerReferences: [reference(rest)], ...metadata },
});

test("ownership: a reference is true only of an owner of that namespace, group, kind, name and uid", () => {
  expect(isControlledBy(child(), sandboxes, owner())).toBe(true);
  const forged = [
    child({ uid: "u0" }),
    child({ name: "b" }),
    child({ kind: "SandboxClaim" }),
    child({ apiVersion: "v1" }),
    child({}, { namespace: "other" }),
  ];
  expect(forged.map((object) => ownershipOf(object, sandboxes, owner()))).toEqual(forged.map(() => "other"));
  expect(ownershipOf(child({ controller: false }), sandboxes, owner())).toBe("unowned");
  expect(controllerOf(child({ controller: false }))).toBeUndefined();
});

test("ownership: an owner without a uid owns nothing", () => {
  const unsaved = { metadata: { name: "a", namespace: "n", uid: "" } };
  expect(isControlledBy(child({ uid: "" }), sandboxes, unsaved)).toBe(false);
});

test("ownership: a Pod has its Sandbox's rights only when the Sandbox names it back", () => {
  const kindOf = (pod: ReturnType<typeof child>, sandbox: Sandbox | undefined) =>
    podOwnerOf(pod, (key) => (key === "n/a" ? sandbox : undefined)).kind;
  expect(kindOf(child(), owner("p1"))).toBe("proven");
  expect(kindOf(child(), owner("p0"))).toBe("unproven");
  expect(kindOf(child(), owner())).toBe("unproven");
  expect(kindOf(child(), undefined)).toBe("unproven");
  expect(kindOf(child({ uid: "u0" }), owner("p1"))).toBe("unproven");
  expect(kindOf(child({}, { namespace: "other" }), owner("p1"))).toBe("unproven");
  expect(kindOf(child({}, { uid: "" }), owner(""))).toBe("unproven");
  expect(kindOf(child({ kind: "Job", apiVersion: "batch/v1" }), owner("p1"))).toBe("none");
});

test("refersTo: versions are ignored and nothing matches an absent reference", () => {
  expect(refersTo(reference(), sandboxes)).toBe(true);
  expect(refersTo(reference(), { group: "", kind: "Sandbox" })).toBe(false);
  expect(refersTo(undefined, { group: "", kind: "" })).toBe(false);
});

test("withReference: replaces the entry of the same name and keeps the others", () => {
  const other = reference({ apiVersion: "v1", kind: "ConfigMap", name: "c", controller: false });
  const wanted = reference({ apiVersion: "agents.x-k8s.io/v1beta1" });
  expect(withReference([other, reference({ uid: "u0" })], wanted)).toEqual([other, wanted]);
});
