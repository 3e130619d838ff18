import fc from "fast-check";
import { expect, test } from "vitest";
import { convertObject } from "./conversion.ts";
import { claimToV1alpha1, claimToV1beta1 } from "./conversion-claim.ts";
import { sandboxToV1alpha1, sandboxToV1beta1 } from "./conversion-sandbox.ts";
import { templateToV1alpha1, templateToV1beta1 } from "./conversion-template.ts";
import { warmPoolToV1alpha1 } from "./conversion-warm-pool.ts";
import type {
  Sandbox,
  SandboxClaim,
  SandboxClaimV1alpha1,
  SandboxTemplate,
  SandboxV1alpha1,
  SandboxWarmPool,
} from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";
import type { KubeObject } from "./meta.ts";

type HubObject = Sandbox | SandboxClaim | SandboxTemplate | SandboxWarmPool;
const versioned = (source: KubeObject, version: string) =>
  convertObject(source, source.apiVersion.replace(/[^/]+$/, version));
const toV1alpha1 = (hub: HubObject) => versioned(hub, "v1alpha1");
const toV1beta1 = (spoke: KubeObject) => versioned(spoke, "v1beta1") as HubObject;

const podTemplate = { spec: { containers: [{ name: "c", image: "i" }] } };
const oldSandbox = (
  spec: Partial<SandboxV1alpha1["spec"]> = {},
  rest: Partial<SandboxV1alpha1> = {},
): SandboxV1alpha1 => ({
  apiVersion: "agents.x-k8s.io/v1alpha1",
  kind: "Sandbox",
  metadata: { name: "s" },
  spec: { podTemplate, ...spec },
  ...rest,
});
const sandbox = (spec: Partial<Sandbox["spec"]> = {}, rest: Partial<Sandbox> = {}): Sandbox => ({
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: { name: "s" },
  spec: { podTemplate, ...spec },
  ...rest,
});

test.each([
  [undefined, "Running"],
  [1, "Running"],
  [0, "Suspended"],
])("sandboxToV1beta1: replicas %s is %s and comes back", (replicas, mode) => {
  const source = oldSandbox(replicas === undefined ? {} : { replicas });
  const hub = sandboxToV1beta1(source);
  expect(hub.spec.operatingMode).toBe(mode);
  const back = sandboxToV1alpha1(hub);
  expect(back.spec).toEqual(source.spec);
  expect(back.metadata).toEqual(source.metadata);
});

test("sandboxToV1beta1: the source is not touched and an old state is neither kept nor nested", () => {
  const source = oldSandbox(
    {},
    { metadata: { name: "s", annotations: { [annotationKeys.sandboxState]: '{"old":1}', a: "b" } } },
  );
  const before = JSON.stringify(source);
  const hub = sandboxToV1beta1(source);
  expect(JSON.stringify(source)).toBe(before);
  expect(hub.metadata.annotations).toEqual({ a: "b", [annotationKeys.sandboxState]: '{"spec":{}}' });
});

test.each<[Sandbox["spec"]["operatingMode"], number]>([
  ["Running", 1],
  ["Suspended", 0],
  [undefined, 1],
])("sandboxToV1alpha1: mode %s without memory gives %d and %d", (operatingMode, count) => {
  const view = sandboxToV1alpha1(sandbox(operatingMode === undefined ? {} : { operatingMode }));
  expect([view.spec.replicas, view.status?.replicas]).toEqual([count, count]);
});

test.each([
  [
    "a whole remembered object",
    '{"apiVersion":"agents.x-k8s.io/v1alpha1","spec":{"replicas":1},"status":{"replicas":0}}',
    "Running",
    1,
    1,
  ],
  ["a remembered 0 after a resume", '{"spec":{"replicas":0}}', "Running", 1, 1],
  ["a remembered 1 after a suspension", '{"spec":{"replicas":1}}', "Suspended", 0, 0],
  ["a remembered absence", '{"spec":{}}', "Running", undefined, 1],
  ["malformed memory", "{not json", "Running", 1, 1],
  ["memory that is no object", "[1]", "Suspended", 0, 0],
] as const)("sandboxToV1alpha1: %s", (_what, state, operatingMode, specReplicas, statusReplicas) => {
  const view = sandboxToV1alpha1(
    sandbox({ operatingMode }, { metadata: { name: "s", annotations: { [annotationKeys.sandboxState]: state } } }),
  );
  expect([view.spec.replicas, view.status?.replicas]).toEqual([specReplicas, statusReplicas]);
  expect(view.metadata.annotations).toBeUndefined();
});

test("sandboxToV1alpha1: an expired Sandbox counts nothing", () => {
  const ready = {
    type: "Ready",
    status: "False" as const,
    reason: "SandboxExpired",
    message: "",
    lastTransitionTime: "2026-01-01T00:00:00Z",
  };
  expect(sandboxToV1alpha1(sandbox({}, { status: { conditions: [ready] } })).status?.replicas).toBe(0);
});

test("sandboxToV1alpha1: the node's name survives a write through v1alpha1", () => {
  const view = sandboxToV1alpha1(sandbox({}, { status: { nodeName: "n1", podIPs: ["10.0.0.1"], podUID: "u1" } }));
  expect(view.status).toEqual({ podIPs: ["10.0.0.1"], podUID: "u1", replicas: 1 });
  expect(sandboxToV1beta1(view).status).toEqual({ nodeName: "n1", podIPs: ["10.0.0.1"], podUID: "u1" });
  expect(sandboxToV1beta1(view).metadata.annotations).toBeUndefined();
});

const template = (spec: Partial<SandboxTemplate["spec"]> = {}): SandboxTemplate => ({
  apiVersion: "extensions.agents.x-k8s.io/v1beta1",
  kind: "SandboxTemplate",
  metadata: { name: "t" },
  spec: { podTemplate, ...spec },
});

test("templateToV1alpha1: the policy travels in its annotation and a cleared one is not resurrected", () => {
  const view = templateToV1alpha1(template({ volumeClaimTemplatesPolicy: "Overrides", networkPolicy: {} }));
  expect(view.metadata.annotations).toEqual({ [annotationKeys.volumeClaimTemplatesPolicy]: "Overrides" });
  expect(view.spec.networkPolicy).toEqual({});
  expect(templateToV1beta1(view)).toEqual(template({ volumeClaimTemplatesPolicy: "Overrides", networkPolicy: {} }));
  const { volumeClaimTemplatesPolicy: _, ...spec } = template().spec;
  const cleared = { ...template(), metadata: view.metadata, spec };
  expect(templateToV1alpha1(cleared).metadata.annotations).toBeUndefined();
});

test("templateToV1beta1: a bad policy is refused by name", () => {
  const view = {
    ...templateToV1alpha1(template()),
    metadata: { name: "t", annotations: { [annotationKeys.volumeClaimTemplatesPolicy]: "Sometimes" } },
  };
  expect(() => templateToV1beta1(view)).toThrow('"Sometimes"');
});

test("warmPoolToV1alpha1: replicas are always there and the observed generation survives", () => {
  const pool = {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxWarmPool",
    metadata: { name: "p" },
    spec: { sandboxTemplateRef: { name: "t" } },
    status: { replicas: 2, observedGeneration: 4 },
  } as const;
  const view = warmPoolToV1alpha1(pool);
  expect(view.spec.replicas).toBe(1);
  expect(view.status).toEqual({ replicas: 2 });
  expect(toV1beta1(view)).toEqual({ ...pool, spec: { ...pool.spec, replicas: 1 } });
});

const oldClaim = (spec: Partial<SandboxClaimV1alpha1["spec"]> = {}, bound?: string): SandboxClaimV1alpha1 => ({
  apiVersion: "extensions.agents.x-k8s.io/v1alpha1",
  kind: "SandboxClaim",
  metadata: { name: "claim" },
  spec: { sandboxTemplateRef: { name: "tpl" }, ...spec },
  ...(bound === undefined ? {} : { status: { sandbox: { name: bound } } }),
});
const claim = (pool: string, rest: Partial<SandboxClaim> = {}): SandboxClaim => ({
  apiVersion: "extensions.agents.x-k8s.io/v1beta1",
  kind: "SandboxClaim",
  metadata: { name: "claim" },
  spec: { warmPoolRef: { name: pool } },
  ...rest,
});

test.each([
  ["a named pool", { warmpool: "gold" }, undefined, "gold"],
  ["a named pool of a bound claim", { warmpool: "gold" }, "other-x1", "gold"],
  ["no pool, unbound", {}, undefined, "shadow-pool-tpl"],
  ["the default pool, bound warm", { warmpool: "default" }, "my-pool-abcde", "my-pool"],
  ["the default pool, bound cold", { warmpool: "default" }, "claim", "shadow-pool-tpl"],
  ["no warm start", { warmpool: "none" }, undefined, "shadow-pool-tpl"],
  ["an empty pool", { warmpool: "" }, undefined, "shadow-pool-tpl"],
])("claimToV1beta1: %s", (_what, spec, bound, pool) => {
  const source = oldClaim(spec, bound);
  const hub = claimToV1beta1(source);
  expect(hub.spec.warmPoolRef.name).toBe(pool);
  expect(claimToV1alpha1(hub)).toEqual(source);
});

test.each([
  ["shadow-pool-tpl", "tpl", "default"],
  ["gold", "gold", "gold"],
  ["", "", ""],
])("claimToV1alpha1: pool %j without memory is template %j and pool %j", (pool, name, warmpool) => {
  expect(claimToV1alpha1(claim(pool)).spec).toEqual({ sandboxTemplateRef: { name }, warmpool });
});

test("claimToV1alpha1: a claim re-pointed in v1beta1 keeps its old template", () => {
  const hub = claimToV1beta1(oldClaim({ warmpool: "gold" }));
  const moved = { ...hub, spec: { ...hub.spec, warmPoolRef: { name: "silver" } } };
  expect(claimToV1alpha1(moved).spec).toEqual({ sandboxTemplateRef: { name: "tpl" }, warmpool: "silver" });
});

test("claimToV1beta1: references changed in v1alpha1 win over the carried pool", () => {
  const view = claimToV1alpha1(claim("default"));
  expect(claimToV1beta1(view).spec.warmPoolRef.name).toBe("default");
  const changed = { ...view, spec: { ...view.spec, warmpool: "gold" } };
  expect(claimToV1beta1(changed).spec.warmPoolRef.name).toBe("gold");
});

test("claimToV1beta1: carried volume claims of the wrong shape are dropped", () => {
  const text = JSON.stringify({ spec: { volumeClaimTemplates: [{ spec: "x" }] } });
  const view = { ...oldClaim(), metadata: { name: "claim", annotations: { [annotationKeys.hubFields]: text } } };
  expect(claimToV1beta1(view).spec.volumeClaimTemplates).toBeUndefined();
});

const name = fc.constantFrom("", "a", "a-b", "default", "none", "shadow-pool-x", "shadow-pool-", "claim", "p-abcde");
const hubs: fc.Arbitrary<HubObject> = fc.oneof(
  fc
    .record({
      mode: fc.constantFrom("Running" as const, "Suspended" as const),
      node: fc.option(fc.constantFrom("n1"), { nil: undefined }),
      wake: fc.option(fc.constantFrom("OnTraffic" as const, "Never" as const), { nil: undefined }),
      ttl: fc.option(fc.nat(100), { nil: undefined }),
    })
    .map(({ mode, node, wake, ttl }) =>
      sandbox(
        {
          operatingMode: mode,
          ...(wake === undefined ? {} : { wakePolicy: wake }),
          ...(ttl === undefined ? {} : { ttlSecondsAfterFinished: ttl, restoreFrom: { snapshotName: "x" } }),
        },
        node === undefined ? {} : { status: { nodeName: node } },
      ),
    ),
  fc
    .record({
      pool: name,
      bound: name,
      volumes: fc.boolean(),
      policy: fc.constantFrom("WarmOnly" as const, "ColdOnly" as const),
    })
    .map(({ pool, bound, volumes, policy }) => ({
      ...claim(pool, bound === "" ? {} : { status: { sandbox: { name: bound } } }),
      spec: {
        warmPoolRef: { name: pool },
        startPolicy: policy,
        ...(volumes ? { volumeClaimTemplates: [{ metadata: { name: "v" }, spec: {} }] } : {}),
      },
    })),
  fc
    .record(
      {
        volumeClaimTemplatesPolicy: fc.constant("Allowed" as const),
        restoreFrom: fc.constant({ snapshotName: "x" }),
        suspensionStrategy: fc.constant({ type: "Stop" as const }),
        autoSuspension: fc.constant({ inactivityTimeoutSeconds: 60, hibernateAfterSeconds: 600 }),
        wakePolicy: fc.constantFrom("OnTraffic" as const, "Never" as const),
        podFailurePolicy: fc.constant({ type: "Recreate" as const, retriesMax: 1 }),
      },
      { requiredKeys: [] },
    )
    .map(template),
);

test("conversion: a stored object loses nothing on its way through v1alpha1", () => {
  fc.assert(
    fc.property(hubs, (hub) => {
      const frozen = JSON.stringify(hub);
      const back = toV1beta1(toV1alpha1(hub));
      expect(JSON.stringify(hub)).toBe(frozen);
      expect(back.spec).toEqual(hub.spec);
      expect(back.status).toEqual(hub.status);
      expect(toV1beta1(toV1alpha1(back))).toEqual(back);
    }),
    { numRuns: 500 },
  );
});

test("conversion: a v1alpha1 claim comes back as it was", () => {
  fc.assert(
    fc.property(name, fc.option(name, { nil: undefined }), name, (tpl, warmpool, bound) => {
      const source = oldClaim(
        { sandboxTemplateRef: { name: tpl }, ...(warmpool === undefined ? {} : { warmpool }) },
        bound,
      );
      expect(claimToV1alpha1(claimToV1beta1(source)).spec).toEqual(source.spec);
    }),
    { numRuns: 500 },
  );
});

test("convertObject: refuses what is not ours, the same version and unknown versions", () => {
  expect(convertObject(oldSandbox({ replicas: 0 }), "agents.x-k8s.io/v1beta1")).toMatchObject({
    spec: { operatingMode: "Suspended" },
  });
  expect(() => convertObject(sandbox(), "agents.x-k8s.io/v1beta1")).toThrow("already");
  expect(() => convertObject(sandbox(), "agents.x-k8s.io/v2")).toThrow("no version v2");
  expect(() => convertObject(sandbox(), "extensions.agents.x-k8s.io/v1alpha1")).toThrow("cannot be converted");
  expect(() => convertObject({ apiVersion: "v1", kind: "Pod", metadata: { name: "p" } }, "v2")).toThrow(
    "cannot be converted",
  );
});
