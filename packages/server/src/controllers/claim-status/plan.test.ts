import { describe, expect, test } from "vitest";
import { aClaim, aCondition, aMember, aSandbox, at, epochMs } from "../testing/builders.ts";
import { claimProblem, failedRequest } from "./claim-problem.ts";
import { type ClaimStatusInput, planClaimExpired, planClaimStatus, planClaimStatusPatch } from "./plan.ts";

function input(parts: Partial<ClaimStatusInput> = {}): ClaimStatusInput {
  return { claim: aClaim(), sandbox: undefined, problem: undefined, expired: false, nowMs: epochMs, ...parts };
}
const readyOf = (parts: Partial<ClaimStatusInput>) => {
  const ready = planClaimStatus(input(parts)).conditions?.find(({ type }) => type === "Ready");
  return [ready?.status, ready?.reason, ready?.message];
};
const withReady = (reason: string, status: "True" | "False" = "False") =>
  aSandbox({ status: { conditions: [aCondition("Ready", status, { reason, message: "m" })] } });
const bound = aClaim({ status: { sandbox: { name: "s", podIPs: ["1"] }, conditions: [aCondition("Ready", "True")] } });

describe("planClaimStatus", () => {
  const rows: [string, Partial<ClaimStatusInput>, unknown[]][] = [
    [
      "template not found",
      { problem: claimProblem("TemplateNotFound", 'SandboxTemplate "t" not found') },
      ["False", "TemplateNotFound", 'SandboxTemplate "t" not found'],
    ],
    [
      "pool not found",
      { problem: claimProblem("WarmPoolNotFound", 'SandboxWarmPool "p" not found') },
      ["False", "WarmPoolNotFound", 'SandboxWarmPool "p" not found'],
    ],
    [
      "a request that failed",
      { problem: failedRequest(new Error("boom")) },
      ["False", "ReconcilerError", "Error seen: boom"],
    ],
    [
      "a problem without a reason of its own",
      { problem: claimProblem("ReconcilerError", "x") },
      ["False", "ReconcilerError", "Error seen: x"],
    ],
    ["expired", { expired: true }, ["False", "ClaimExpired", "Claim expired. Sandbox cleanup initiated."]],
    [
      "R34 expired, not ours",
      { expired: true, problem: claimProblem("SandboxNotOwned", "not ours") },
      ["False", "ClaimExpired", "Claim expired. not ours; deletion skipped."],
    ],
    [
      "expired, delete failed",
      { expired: true, problem: failedRequest(new Error("503")) },
      ["False", "ClaimExpired", "Claim expired. 503"],
    ],
    ["no sandbox", {}, ["False", "SandboxMissing", "Sandbox does not exist"]],
    [
      "sandbox expired",
      { sandbox: withReady("SandboxExpired") },
      ["False", "SandboxExpired", "Underlying Sandbox resource has expired independently of the Claim."],
    ],
    ["copied", { sandbox: withReady("DependenciesReady", "True") }, ["True", "DependenciesReady", "m"]],
    ["without Ready", { sandbox: aSandbox() }, ["False", "SandboxNotReady", "Sandbox is not ready"]],
    [
      "sandbox on its way out",
      { sandbox: aMember("m", { metadata: { deletionTimestamp: at(0) } }) },
      ["False", "SandboxNotReady", "Sandbox is terminating"],
    ],
  ];
  test.each(rows)("planClaimStatus: %s", (_title, parts, expected) => {
    expect(readyOf(parts)).toEqual(expected);
  });
  test("planClaimStatus: R32 a problem keeps the binding, no problem and no sandbox drops it", () => {
    expect(planClaimStatus(input({ claim: bound, problem: failedRequest(new Error("x")) })).sandbox).toEqual({
      name: "s",
      podIPs: ["1"],
    });
    expect(planClaimStatus(input({ claim: bound })).sandbox).toBeUndefined();
    expect(
      planClaimStatus(input({ claim: bound, expired: true, problem: claimProblem("SandboxNotOwned", "x") })).sandbox,
    ).toBeUndefined();
  });
  test("planClaimStatus: R40 the generation is the claim's, and Ready is never older than the claim", () => {
    const claim = aClaim({ metadata: { generation: 7, creationTimestamp: at(100) } });
    const ready = planClaimStatus(input({ claim, sandbox: withReady("DependenciesReady", "True") })).conditions?.[0];
    expect(ready).toMatchObject({ observedGeneration: 7, lastTransitionTime: at(100) });
  });
  test("planClaimStatus: Finished is mirrored as it is and kept by an expired claim", () => {
    const finished = aCondition("Finished", "True", { observedGeneration: 9 });
    const status = planClaimStatus(input({ sandbox: aSandbox({ status: { conditions: [finished] } }) }));
    expect(status.conditions?.[0]).toEqual(finished);
    const claim = aClaim({ status: { conditions: [finished] } });
    expect(planClaimStatus(input({ claim })).conditions?.map(({ type }) => type)).toEqual(["Ready"]);
    expect(planClaimStatus(input({ claim, expired: true })).conditions?.map(({ type }) => type)).toEqual([
      "Finished",
      "Ready",
    ]);
    expect(planClaimExpired(claim, claim.status, epochMs).conditions?.map(({ type }) => type)).toEqual([
      "Finished",
      "Ready",
    ]);
  });
});

describe("planClaimStatusPatch", () => {
  test("planClaimStatusPatch: the order of conditions is no change", () => {
    const conditions = [aCondition("Ready", "True"), aCondition("Finished", "True")];
    const claim = aClaim({ status: { conditions } });
    expect(planClaimStatusPatch(claim, { conditions: [...conditions].reverse() })).toBeUndefined();
  });
  test("planClaimStatusPatch: addresses that went are named", () => {
    expect(planClaimStatusPatch(bound, { ...bound.status, sandbox: { name: "s" } })).toEqual({
      sandbox: { name: "s", podIPs: null },
    });
  });
});
