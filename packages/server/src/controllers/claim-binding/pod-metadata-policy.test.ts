import { describe, expect, test } from "vitest";
import { mergePodMetadata, podMetadataProblem } from "./pod-metadata-policy.ts";

describe("podMetadataProblem", () => {
  const allowed = ["sandbox.users.io"];
  const rows: [string, Parameters<typeof podMetadataProblem>[0], boolean][] = [
    ["allowed domain", { labels: { "sandbox.users.io/x": "y" } }, true],
    ["subdomain of it", { labels: { "a.sandbox.users.io/x": "y" } }, true],
    ["no domain", { labels: { x: "y" } }, false],
    ["another domain", { labels: { "evil.io/x": "y" } }, false],
    ["a look-alike", { labels: { "notsandbox.users.io/x": "y" } }, false],
    ["the router's label", { labels: { app: "Sandbox-Router" } }, false],
    ["a bad label value", { labels: { "sandbox.users.io/x": "no spaces" } }, false],
    ["a plain annotation", { annotations: { note: "anything at all" } }, true],
    ["a system annotation", { annotations: { "scheduler.k8s.io/x": "y" } }, false],
    ["a reserved annotation", { annotations: { "agents.x-k8s.io/pod-name": "y" } }, false],
    ["services", { annotations: { "agent-sandbox.dev/services": '[{"name":"a","command":["id"]}]' } }, false],
    ["the daemon's annotation", { annotations: { "agent-sandbox.dev/sandboxd": "disabled" } }, false],
    ["below our own domain", { annotations: { "x.agent-sandbox.dev/y": "z" } }, false],
    ["a label of our own domain", { labels: { "agent-sandbox.dev/x": "y" } }, false],
    ["the one exemption", { annotations: { "cluster-autoscaler.kubernetes.io/safe-to-evict": "false" } }, true],
  ];
  test.each(rows)("podMetadataProblem: %s", (_title, metadata, fine) => {
    expect(podMetadataProblem(metadata, allowed)?.reason).toBe(fine ? undefined : "InvalidMetadata");
  });
  test("podMetadataProblem: N5 two bad keys give one stable message", () => {
    const message = (labels: Record<string, string>) => podMetadataProblem({ labels }, allowed)?.message;
    expect(message({ b: "1", a: "2" })).toBe(message({ a: "2", b: "1" }));
    expect(message({ b: "1", a: "2" })).toMatch(
      /^invalid additionalPodMetadata: failed to validate label "a": .*; failed to validate label "b": /,
    );
  });
});

describe("mergePodMetadata", () => {
  test("mergePodMetadata: equal values are fine, different ones refused", () => {
    expect(mergePodMetadata({ labels: { a: "1" } }, { labels: { a: "1", b: "2" } })).toEqual({
      labels: { a: "1", b: "2" },
      annotations: {},
    });
    expect(mergePodMetadata({ annotations: { a: "1" } }, { annotations: { a: "2" } })).toMatchObject({
      reason: "InvalidMetadata",
      message:
        'metadata override conflict: annotation "a" is defined in template with value "1", but claim requests "2"',
    });
  });
});
