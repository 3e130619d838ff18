import { expect, test } from "vitest";
import { keptSandbox, sandboxOf, sandboxToRecall } from "./kept-sandbox.ts";
import type { Sandbox, SandboxArchive } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";

const owner = { apiVersion: "v1", kind: "ConfigMap", name: "o", uid: "u" };
const sandbox: Sandbox = {
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: {
    name: "box",
    namespace: "a",
    uid: "uid",
    resourceVersion: "7",
    labels: { team: "red" },
    annotations: { mine: "1", [annotationKeys.address]: "10.0.0.9", [annotationKeys.lastActivityAt]: "t" },
    ownerReferences: [{ ...owner, blockOwnerDeletion: true }],
  },
  spec: {
    podTemplate: { spec: { containers: [{ name: "main", image: "busybox" }] } },
    operatingMode: "Suspended",
    restoreFrom: { snapshotName: "old" },
  },
  status: { podUID: "p" },
};

const archive = (kept: Record<string, unknown>): SandboxArchive => ({
  apiVersion: "agent-sandbox.dev/v1alpha1",
  kind: "SandboxArchive",
  metadata: { name: "box", namespace: "a" },
  spec: {},
  status: { sandbox: kept },
});

test("keptSandbox: keeps what a user gave, and nothing that is of one life of the Sandbox", () => {
  expect(keptSandbox(sandbox)).toEqual({
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: {
      name: "box",
      namespace: "a",
      labels: { team: "red" },
      annotations: { mine: "1" },
      ownerReferences: [owner],
    },
    spec: { podTemplate: sandbox.spec.podTemplate, operatingMode: "Suspended" },
  });
});

test("sandboxToRecall: runs, from the snapshot that it is given", () => {
  const back = sandboxToRecall(archive({ ...keptSandbox(sandbox) }), "snap", 0);
  expect(back?.spec).toMatchObject({ operatingMode: "Running", restoreFrom: { snapshotName: "snap" } });
  expect(back?.metadata).toMatchObject({ name: "box", labels: { team: "red" } });
});

test.each<[string, Record<string, unknown>]>([
  ["of another name", { ...keptSandbox(sandbox), metadata: { name: "x", namespace: "a" } }],
  ["of another namespace", { ...keptSandbox(sandbox), metadata: { name: "box", namespace: "b" } }],
  ["of another kind", { ...keptSandbox(sandbox), kind: "Secret" }],
  ["that is nothing", {}],
])("sandboxOf: gives no object %s", (_title, kept) => {
  expect(sandboxOf(archive(kept))).toBeUndefined();
});
