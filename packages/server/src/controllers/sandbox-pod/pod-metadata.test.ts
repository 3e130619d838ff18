import type { Container } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { stripPod } from "../caches.ts";
import { aPod, aSandbox, ownedByExtension } from "../testing/builders.ts";
import { newPodMetadata, planPodMetadata } from "./pod-metadata.ts";
import { podOf } from "./pod-object.ts";

const hashed = { "agents.x-k8s.io/sandbox-name-hash": "374de8f5" };

function withTemplate(labels: Record<string, string>, annotations: Record<string, string> = {}) {
  return aSandbox({ spec: { podTemplate: { metadata: { labels, annotations }, spec: { containers: [] } } } });
}

describe("newPodMetadata", () => {
  test("newPodMetadata: P2 reserved keys of the template are dropped and the rest is listed", () => {
    const sandbox = withTemplate(
      { app: "x", "agents.x-k8s.io/sandbox-name-hash": "forged", "extensions.agents.x-k8s.io/y": "z" },
      { note: "n", "agents.x-k8s.io/pod-name": "p", "opentelemetry.io/trace-context": "{}" },
    );
    expect(newPodMetadata(sandbox)).toEqual({
      labels: { app: "x", ...hashed },
      annotations: {
        note: "n",
        "agents.x-k8s.io/propagated-labels": "app",
        "agents.x-k8s.io/propagated-annotations": "note",
      },
    });
  });
  test("newPodMetadata: services come from the Sandbox alone, and of our own domain the template gives two keys", () => {
    const [services, daemon, defaults] = ["services", "sandboxd", "container-defaults"].map(
      (name) => `agent-sandbox.dev/${name}`,
    ) as [string, string, string];
    const said = { [daemon]: "published-ports", [defaults]: "disabled" };
    const list = "agents.x-k8s.io/propagated-annotations";
    const forged = withTemplate({}, { ...said, [services]: "forged", "agent-sandbox.dev/virtual": "router" });
    expect(newPodMetadata(forged).annotations).toEqual({ ...said, [list]: `${defaults},${daemon}` });
    const declared = { ...forged, metadata: { ...forged.metadata, annotations: { [services]: "[]" } } };
    const made = newPodMetadata(declared);
    expect(made.annotations).toEqual({ ...said, [services]: "[]", [list]: [defaults, daemon, services].sort().join() });
    const pod = aPod({ metadata: made });
    expect(planPodMetadata(pod, declared)).toBeUndefined();
    expect(planPodMetadata(pod, forged)?.annotations).toEqual({ [services]: null, [list]: `${defaults},${daemon}` });
  });
  test.each([
    ["python-client", "python-client"],
    ["evil", "unknown"],
  ])("newPodMetadata: P14 created-by %s becomes %s", (value, expected) => {
    const sandbox = aSandbox({ metadata: { labels: { "agents.x-k8s.io/created-by": value } } });
    expect(newPodMetadata(sandbox).labels["agents.x-k8s.io/created-by"]).toBe(expected);
  });
  test("newPodMetadata: a pool's default annotation reaches only the pool's Pods", () => {
    const evict = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    const base = withTemplate({}, { [evict]: "true" });
    const marked = { annotations: { "agent-sandbox.dev/pool-default-annotations": evict } };
    const owned = (kind: string) => ({
      ...base,
      metadata: { ...base.metadata, ...marked, ownerReferences: [ownedByExtension(kind, "o")] },
    });
    expect(newPodMetadata(owned("SandboxWarmPool")).annotations).toHaveProperty([evict], "true");
    expect(newPodMetadata(owned("SandboxClaim")).annotations).not.toHaveProperty([evict]);
    expect(
      newPodMetadata({
        ...base,
        metadata: { ...base.metadata, ownerReferences: [ownedByExtension("SandboxClaim", "o")] },
      }).annotations,
    ).toHaveProperty([evict], "true");
  });
});

describe("planPodMetadata", () => {
  test("planPodMetadata: an aligned Pod needs nothing", () => {
    expect(planPodMetadata(aPod(), aSandbox())).toBeUndefined();
  });
  test("planPodMetadata: P4 changed and new keys are set, removed ones go, strangers stay", () => {
    const pod = aPod({
      metadata: {
        labels: { ...hashed, app: "old", gone: "1", webhook: "w", "agents.x-k8s.io/other": "kept" },
        annotations: { "agents.x-k8s.io/propagated-labels": "app,gone" },
      },
    });
    expect(planPodMetadata(pod, withTemplate({ app: "new", extra: "1" }))).toEqual({
      labels: { app: "new", extra: "1", gone: null },
      annotations: { "agents.x-k8s.io/propagated-labels": "app,extra" },
    });
  });
  test("planPodMetadata: P3, core N0d reserved keys an older controller leaked are scrubbed, our own label is not", () => {
    const annotations = {
      "agents.x-k8s.io/propagated-labels": "agents.x-k8s.io/sandbox-name-hash,agents.x-k8s.io/evil",
    };
    const pod = aPod({ metadata: { labels: { ...hashed, "agents.x-k8s.io/evil": "1" }, annotations } });
    expect(planPodMetadata(pod, aSandbox())).toEqual({
      labels: { "agents.x-k8s.io/evil": null },
      annotations: { "agents.x-k8s.io/propagated-labels": "" },
    });
  });
  test("planPodMetadata: created-by and extension labels go when the Sandbox loses them", () => {
    const labels = { ...hashed, "agents.x-k8s.io/created-by": "go-client", "agents.x-k8s.io/warm-pool-sandbox": "p" };
    expect(planPodMetadata(aPod({ metadata: { labels } }), aSandbox())).toEqual({
      labels: { "agents.x-k8s.io/created-by": null, "agents.x-k8s.io/warm-pool-sandbox": null },
    });
  });
  test("planPodMetadata: K1 the patch is the same from a full and from a stripped Pod", () => {
    const full = { ...aPod(), spec: { nodeName: "n", containers: [{ name: "c", image: "i" }] } };
    full.metadata = { ...full.metadata, finalizers: ["f"], managedFields: [{ manager: "m" }] };
    const sandbox = withTemplate({ app: "x" });
    const patch = JSON.stringify(planPodMetadata(full, sandbox));
    expect(JSON.stringify(planPodMetadata(stripPod(structuredClone(full)), sandbox))).toBe(patch);
    expect(patch).not.toMatch(/spec|managedFields|finalizers/);
    expect(stripPod(structuredClone(full))).toMatchObject({ spec: { nodeName: "n" }, status: { phase: "Running" } });
    expect(Object.keys(stripPod(structuredClone(full)).spec)).toEqual(["nodeName"]);
  });
});

describe("podOf", () => {
  test("podOf: P15 claim volumes replace namesakes and follow the others in template order", () => {
    const claim = (name: string) => ({ metadata: { name }, spec: {} });
    const volumes = [
      { name: "a", emptyDir: {} },
      { name: "keep", emptyDir: {} },
    ];
    const sandbox = aSandbox({
      spec: { podTemplate: { spec: { containers: [], volumes } }, volumeClaimTemplates: [claim("b"), claim("a")] },
    });
    expect(podOf(sandbox).spec.volumes).toEqual([
      { name: "keep", emptyDir: {} },
      { name: "b", persistentVolumeClaim: { claimName: "b-my-sandbox" } },
      { name: "a", persistentVolumeClaim: { claimName: "a-my-sandbox" } },
    ]);
    expect(podOf(aSandbox({ spec: { podTemplate: { spec: { containers: [], volumes } } } })).spec.volumes).toEqual(
      volumes,
    );
  });
  const fallback = { terminationMessagePolicy: "FallbackToLogsOnError" };
  const rows: [string, Partial<Container>, Partial<Container>][] = [
    ["no program", {}, { stdin: true, ...fallback }],
    ["an empty command", { command: [], args: [] }, { stdin: true, ...fallback }],
    ["a command", { command: ["a"] }, fallback],
    ["arguments", { args: ["a"] }, fallback],
    ["a closed input", { stdin: false }, fallback],
    ["a policy", { command: ["a"], terminationMessagePolicy: "File" }, {}],
  ];
  test.each(rows)("podOf: P17 the first container, where its author names %s", (_title, given, added) => {
    const containers = [
      { name: "main", image: "i", ...given },
      { name: "other", image: "i" },
    ];
    const { spec } = podOf(aSandbox({ spec: { podTemplate: { spec: { containers } } } }));
    expect(spec).toEqual({ containers: [{ name: "main", image: "i", ...given, ...added }, containers[1]] });
  });
  test("podOf: P17 nothing is injected where an annotation of the Sandbox or of its template says so", () => {
    const off = { annotations: { "agent-sandbox.dev/container-defaults": "disabled" } };
    const bare = { containers: [{ name: "main", image: "busybox" }] };
    expect(podOf(aSandbox({ metadata: off })).spec).toEqual(bare);
    expect(podOf(aSandbox({ spec: { podTemplate: { metadata: off, spec: bare } } })).spec).toEqual(bare);
  });
});
