import { isDnsLabel } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aClaim, aMember, aPool, aTemplate, at, epochMs, ownedByExtension } from "../testing/builders.ts";
import { sandboxNameKey } from "../well-known.ts";
import { ClaimProblem } from "./claim-problem.ts";
import { mergeVolumeClaims } from "./claim-volumes.ts";
import { coldSandbox, coldSandboxName } from "./cold-sandbox.ts";
import { withEnvironment } from "./environment.ts";
import { judge, planClearReservation, reservationOf } from "./judgement.ts";
import { mergePodMetadata, validatePodMetadata } from "./pod-metadata-policy.ts";
import { bindDeadlineMs, planStart } from "./start.ts";

function problemOf(work: () => unknown): [string, string] | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    if (error instanceof ClaimProblem) return [error.reason, error.message];
    throw error;
  }
}

describe("withEnvironment", () => {
  const spec = {
    containers: [
      { name: "main", env: [{ name: "A", value: "1" }] },
      { name: "side", envFrom: [{}] },
    ],
    initContainers: [{ name: "init" }],
  };
  const rejected = "environment variable injection rejected: ";
  const rows: [string, Parameters<typeof withEnvironment>[2], Parameters<typeof withEnvironment>[1], string][] = [
    [
      "disallowed",
      "Disallowed",
      [{ name: "B", value: "2" }],
      "environment variable injection is not allowed by the template policy",
    ],
    [
      "unset policy",
      undefined,
      [{ name: "B", value: "2" }],
      "environment variable injection is not allowed by the template policy",
    ],
    [
      "unknown container",
      "Overrides",
      [{ name: "B", value: "2", containerName: "x" }],
      'target container "x" not found in template for environment variable "B"',
    ],
    [
      "envFrom under Allowed",
      "Allowed",
      [{ name: "B", value: "2", containerName: "side" }],
      'container "side" uses EnvFrom sources; Allowed policy cannot safely prevent overriding EnvFrom-provided variables',
    ],
    [
      "override under Allowed",
      "Allowed",
      [{ name: "A", value: "2" }],
      'environment variable override is not allowed by the template policy for variable "A"',
    ],
    [
      "a duplicate under Allowed",
      "Allowed",
      [
        { name: "B", value: "1" },
        { name: "B", value: "2" },
      ],
      'environment variable override is not allowed by the template policy for variable "B"',
    ],
  ];
  test.each(rows)("withEnvironment: %s is refused", (_title, policy, env, detail) => {
    expect(problemOf(() => withEnvironment(spec, env, policy))).toEqual([
      "EnvVarsInjectionRejected",
      rejected + detail,
    ]);
  });
  test("withEnvironment: new names are appended, Overrides replaces in place, init containers are reachable", () => {
    const env = [
      { name: "B", value: "2" },
      { name: "A", value: "9" },
      { name: "C", value: "3", containerName: "init" },
    ];
    const changed = withEnvironment(spec, env, "Overrides");
    expect(changed.containers[0]?.env).toEqual([
      { name: "A", value: "9" },
      { name: "B", value: "2" },
    ]);
    expect(changed.initContainers?.[0]?.env).toEqual([{ name: "C", value: "3" }]);
    expect(spec.containers[0]?.env).toEqual([{ name: "A", value: "1" }]);
  });
});

describe("mergeVolumeClaims", () => {
  const claim = (name: string, size = "1Gi") => ({
    metadata: { name },
    spec: { resources: { requests: { storage: size } } },
  });
  const rows: [string, string[], string[], Parameters<typeof mergeVolumeClaims>[2], string][] = [
    ["disallowed", [], ["a"], undefined, "volume claim templates are disallowed by the template"],
    ["shared name under Allowed", ["a"], ["a"], "Allowed", 'cannot override template volume "a"'],
    ["empty name", [], [""], "Allowed", "name at index 0 is empty"],
    ["duplicate", [], ["a", "a"], "Overrides", 'duplicate name "a"'],
    ["duplicate in the template", ["a", "a"], [], undefined, 'duplicate name "a"'],
  ];
  test.each(rows)("mergeVolumeClaims: %s is refused", (_title, template, own, policy, detail) => {
    const problem = problemOf(() =>
      mergeVolumeClaims(
        template.map((name) => claim(name)),
        own.map((name) => claim(name)),
        policy,
      ),
    );
    expect(problem?.[0]).toBe("VolumeClaimTemplatesError");
    expect(problem?.[1]).toContain(detail);
  });
  test("mergeVolumeClaims: Overrides keeps the template's order and appends", () => {
    const merged = mergeVolumeClaims([claim("a"), claim("b")], [claim("c"), claim("a", "9Gi")], "Overrides");
    expect(merged).toEqual([claim("a", "9Gi"), claim("b"), claim("c")]);
  });
});

describe("validatePodMetadata", () => {
  const allowed = ["sandbox.users.io"];
  const rows: [string, Parameters<typeof validatePodMetadata>[0], boolean][] = [
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
    ["the one exemption", { annotations: { "cluster-autoscaler.kubernetes.io/safe-to-evict": "false" } }, true],
  ];
  test.each(rows)("validatePodMetadata: %s", (_title, metadata, fine) => {
    expect(problemOf(() => validatePodMetadata(metadata, allowed))?.[0]).toBe(fine ? undefined : "InvalidMetadata");
  });
  test("validatePodMetadata: N5 two bad keys give one stable message", () => {
    const message = (labels: Record<string, string>) => problemOf(() => validatePodMetadata({ labels }, allowed))?.[1];
    expect(message({ b: "1", a: "2" })).toBe(message({ a: "2", b: "1" }));
    expect(message({ b: "1", a: "2" })).toMatch(
      /^invalid additionalPodMetadata: failed to validate label "a": .*; failed to validate label "b": /,
    );
  });
  test("mergePodMetadata: equal values are fine, different ones refused", () => {
    expect(mergePodMetadata({ labels: { a: "1" } }, { labels: { a: "1", b: "2" } }).labels).toEqual({ a: "1", b: "2" });
    expect(problemOf(() => mergePodMetadata({ annotations: { a: "1" } }, { annotations: { a: "2" } }))).toEqual([
      "InvalidMetadata",
      'metadata override conflict: annotation "a" is defined in template with value "1", but claim requests "2"',
    ]);
  });
});

describe("planStart", () => {
  const none = { ready: 0, networked: 0, pending: 0 };
  const step = (spec: Parameters<typeof aClaim>[0], offer = none, ageMs = 0) =>
    planStart({ claim: aClaim(spec), offer, firstSeenMs: epochMs, nowMs: epochMs + ageMs });
  test("planStart: R21 ready first, then networked, then a short wait, then cold", () => {
    expect(step({}, { ready: 1, networked: 1, pending: 1 })).toEqual({ do: "adopt", readiness: "ready" });
    expect(step({}, { ...none, networked: 1 })).toEqual({ do: "adopt", readiness: "networked" });
    expect(step({}, { ...none, pending: 1 }, 1_999)).toEqual({ do: "wait", untilMs: epochMs + 2_000 });
    expect(step({}, { ...none, pending: 1 }, 2_000)).toEqual({ do: "create", reason: "none-ready" });
    expect(step({})).toEqual({ do: "create", reason: "pool-empty" });
  });
  test("planStart: env and volumes start cold whatever the pool has", () => {
    const full = { ...none, ready: 5 };
    expect(step({ spec: { env: [{ name: "A", value: "1" }] } }, full)).toEqual({ do: "create", reason: "claim-env" });
    expect(step({ spec: { volumeClaimTemplates: [{ spec: {} }] } }, full)).toEqual({
      do: "create",
      reason: "claim-volumes",
    });
  });
  test("planStart: ColdOnly and WarmOnly", () => {
    expect(step({ spec: { startPolicy: "ColdOnly" } }, { ...none, ready: 1 })).toEqual({
      do: "create",
      reason: "policy",
    });
    expect(step({ spec: { startPolicy: "WarmOnly" } }, none, 60_000)).toMatchObject({
      do: "wait",
      problem: { reason: "WarmSandboxPending" },
    });
    expect(problemOf(() => step({ spec: { startPolicy: "WarmOnly", env: [{ name: "A", value: "1" }] } }))?.[0]).toBe(
      "InvalidConfiguration",
    );
  });
  test("bindDeadlineMs: counts from creation", () => {
    expect(bindDeadlineMs(aClaim({ spec: { bindTimeoutSeconds: 5 } }))).toBe(epochMs + 5_000);
    expect(bindDeadlineMs(aClaim())).toBeUndefined();
  });
});

describe("judge", () => {
  const owner = (...refs: ReturnType<typeof ownedByExtension>[]) =>
    aMember("m", { metadata: { ownerReferences: refs } });
  const rows: [string, ReturnType<typeof aMember>, string][] = [
    ["its own", owner(ownedByExtension("SandboxClaim", "claim")), "ours"],
    ["R18 another claim's", owner(ownedByExtension("SandboxClaim", "other")), "lost-to-claim"],
    ["a namesake's of an earlier life", owner(ownedByExtension("SandboxClaim", "claim", "old")), "lost-to-claim"],
    ["a member of the pool", aMember("m"), "takeable"],
    ["R19 a member of another pool", owner(ownedByExtension("SandboxWarmPool", "other")), "not-takeable"],
    [
      "N8 a member of an earlier pool of that name",
      owner(ownedByExtension("SandboxWarmPool", "pool", "old")),
      "not-takeable",
    ],
    [
      "a member on its way out",
      aMember("m", { metadata: { ...aMember("m").metadata, deletionTimestamp: at(0) } }),
      "not-takeable",
    ],
    ["an unowned one with forged labels", owner(), "foreign"],
    [
      "one of another namespace",
      aMember("m", { metadata: { ...aMember("m").metadata, namespace: "elsewhere" } }),
      "foreign",
    ],
    [
      "R27 a member with a reference of the older version",
      owner({ ...ownedByExtension("SandboxWarmPool", "pool"), apiVersion: "extensions.agents.x-k8s.io/v1alpha1" }),
      "not-takeable",
    ],
  ];
  test.each(rows.slice(0, -1))("judge: %s", (_title, sandbox, expected) => {
    expect(judge(sandbox, aClaim(), aPool())).toBe(expected);
  });
  test("judge: R27 a reference of the older version counts, another group does not", () => {
    const labelled = (apiVersion: string) => ({
      ...aMember("m"),
      metadata: {
        ...aMember("m").metadata,
        ownerReferences: [{ ...ownedByExtension("SandboxWarmPool", "pool"), apiVersion }],
      },
    });
    expect(judge(labelled("extensions.agents.x-k8s.io/v1alpha1"), aClaim(), aPool())).toBe("takeable");
    expect(judge(labelled("other.io/v1"), aClaim(), aPool())).toBe("foreign");
  });
  test("reservationOf: R26 the annotation, else the legacy label; clearing takes exactly one name", () => {
    const labelled = aClaim({ metadata: { labels: { [sandboxNameKey]: "a" } } });
    expect(reservationOf(labelled)).toBe("a");
    expect(planClearReservation(labelled, "a")).toEqual({ labels: { [sandboxNameKey]: null } });
    expect(planClearReservation(labelled, "b")).toBeUndefined();
  });
});

describe("coldSandbox", () => {
  test("coldSandbox: labels, annotation, owner and defaults", () => {
    const sandbox = coldSandbox(
      aClaim({ metadata: { labels: { "agents.x-k8s.io/created-by": "go-client" } } }),
      aTemplate(),
    );
    expect(sandbox.metadata).toMatchObject({
      name: "claim",
      labels: {
        "agents.x-k8s.io/claim-uid": "uid-claim",
        "agents.x-k8s.io/created-by": "go-client",
        "agents.x-k8s.io/launch-type": "cold",
        "agents.x-k8s.io/sandbox-template-ref-hash": "9d22159f",
      },
      ownerReferences: [{ kind: "SandboxClaim", uid: "uid-claim", controller: true }],
    });
    expect(sandbox.spec.podTemplate.spec.automountServiceAccountToken).toBe(false);
  });
  test("coldSandboxName: a claim name that is no host name gives a stable one", () => {
    for (const name of ["a.b.c", "x".repeat(253), "9-lives", "UPPER.x"]) {
      const made = coldSandboxName(aClaim({ name }));
      expect(isDnsLabel(made)).toBe(true);
      expect(coldSandboxName(aClaim({ name }))).toBe(made);
    }
    expect(coldSandboxName(aClaim())).toBe("claim");
  });
});
