import { expect, test } from "vitest";
import { choosePool, poolSpecOf } from "./aliases.ts";
import type { SandboxWarmPool } from "./kinds.gen.ts";
import { shadowPoolOf } from "./shadow-pool.ts";

function pool(name: string, replicas: number, readyReplicas?: number, deletionTimestamp?: string): SandboxWarmPool {
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxWarmPool",
    metadata: { name, ...(deletionTimestamp !== undefined && { deletionTimestamp }) },
    spec: { replicas, sandboxTemplateRef: { name: "t" } },
    ...(readyReplicas !== undefined && { status: { readyReplicas } }),
  };
}

const choices: readonly [title: string, pools: SandboxWarmPool[], chosen: string | undefined][] = [
  ["none", [], undefined],
  ["most ready members", [pool("a", 9, 1), pool("b", 2, 2)], "b"],
  ["the largest where none is ready", [pool("shadow-pool-t", 0), pool("z", 3)], "z"],
  ["the first by name otherwise", [pool("b", 1), pool("a", 1)], "a"],
  ["never one that is being deleted", [pool("a", 3, 3, "2026-01-01T00:00:00Z"), pool("b", 0)], "b"],
];

for (const [title, pools, chosen] of choices) {
  test(`choosePool: ${title}`, () => {
    expect(choosePool(pools)?.metadata.name).toBe(chosen);
  });
}

test("poolSpecOf: a pool without a size has one member, as the real kind has", () => {
  const alias = { apiVersion: "agents.x-k8s.io/v1alpha1", kind: "SandboxWarmPool", metadata: { name: "p" } } as const;
  expect(poolSpecOf({ ...alias, spec: { template: "t" } })).toEqual({
    replicas: 1,
    sandboxTemplateRef: { name: "t" },
  });
});

test("shadowPoolOf: has no members and goes with its template", () => {
  const made = shadowPoolOf({
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxTemplate",
    metadata: { name: "t", namespace: "n", uid: "u" },
    spec: { podTemplate: { spec: { containers: [] } } },
  });
  expect(made.metadata).toMatchObject({
    name: "shadow-pool-t",
    namespace: "n",
    ownerReferences: [{ kind: "SandboxTemplate", name: "t", uid: "u" }],
  });
  expect(made.spec).toEqual({ replicas: 0, sandboxTemplateRef: { name: "t" } });
});
