import type { Pod, Sandbox } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { effectiveMode } from "../sandbox-suspension/effective-mode.ts";
import { aCondition, aPod, aSandbox, at, epochMs, readyPodStatus } from "../testing/builders.ts";
import {
  finishedVerdict,
  podScheduledVerdict,
  readyVerdict,
  type StepResults,
  suspendedVerdict,
} from "./conditions.ts";

const running = aSandbox();
const suspended = aSandbox({ spec: { operatingMode: "Suspended" } });
const foreign = aPod({ metadata: { ownerReferences: [] } });

function results(parts: Partial<StepResults> = {}): StepResults {
  return {
    pod: undefined,
    podError: undefined,
    multiplePods: undefined,
    invalid: undefined,
    errors: [],
    serviceExists: false,
    recovery: { kind: "none" },
    sleep: { wish: undefined, stage: { name: "none" } },
    ...parts,
  };
}

function withStatus(status: Pod["status"]): Pod {
  return { ...aPod(), ...(status === undefined ? {} : { status }) };
}

describe("suspendedVerdict", () => {
  const rows: [string, Sandbox, Partial<StepResults>, string, string, string][] = [
    ["running", running, { pod: aPod() }, "False", "NotSuspended", "Sandbox is not suspended"],
    [
      "S8 lookup failed",
      suspended,
      { podError: "boom" },
      "Unknown",
      "PodStateUnknown",
      "Pod state is unknown. Sandbox suspension cannot be confirmed",
    ],
    ["no pod", suspended, {}, "True", "PodTerminated", "Pod has been terminated. Sandbox is suspended"],
    [
      "foreign pod",
      suspended,
      { pod: foreign },
      "False",
      "PodNotOwned",
      "Refused to delete pod because it is not owned by this sandbox",
    ],
    [
      "own pod still there",
      suspended,
      { pod: aPod() },
      "False",
      "PodTerminating",
      "Pod is terminating. Sandbox is suspending",
    ],
    [
      "S4 own pod, delete failed",
      suspended,
      { pod: aPod(), podError: "no" },
      "False",
      "PodTerminating",
      "Pod is terminating. Sandbox is suspending",
    ],
  ];
  test.each(rows)("suspendedVerdict: S1 %s", (_title, sandbox, parts, status, reason, message) => {
    const verdict = suspendedVerdict(sandbox, effectiveMode(sandbox, epochMs), results(parts));
    expect(verdict).toEqual({ type: "Suspended", status, reason, message });
  });
});

describe("finishedVerdict", () => {
  const leaving = (phase: string) => aPod({ metadata: { deletionTimestamp: at(9) }, status: { phase } });
  test.each(["Succeeded", "Failed"])("finishedVerdict: a Pod that was told to go did not finish: %s", (phase) => {
    expect(finishedVerdict(running, results({ pod: leaving(phase) }))).toBeUndefined();
  });
  test("finishedVerdict: what had finished before its Pod was told to go stays finished", () => {
    const finished = { ...running, status: { conditions: [aCondition("Finished", "True")] } };
    expect(finishedVerdict(finished, results({ pod: leaving("Failed") }))?.reason).toBe("PodFailed");
  });
  const rows: [string, Pod | undefined, string | undefined, string][] = [
    ["succeeded", withStatus({ phase: "Succeeded" }), "PodSucceeded", "Pod completed successfully"],
    ["failed", withStatus({ phase: "Failed" }), "PodFailed", "Pod failed"],
    ["running pod", aPod(), undefined, ""],
    ["absent pod", undefined, undefined, ""],
    ["S3 foreign terminal pod", { ...foreign, status: { phase: "Failed" } }, undefined, ""],
  ];
  test.each(rows)("finishedVerdict: S1 %s", (_title, pod, reason, message) => {
    const verdict = finishedVerdict(running, results({ pod }));
    expect(verdict).toEqual(reason === undefined ? undefined : { type: "Finished", status: "True", reason, message });
  });
});

describe("podScheduledVerdict", () => {
  const scheduled = (condition: NonNullable<NonNullable<Pod["status"]>["conditions"]>[number]): Pod =>
    withStatus({ phase: "Pending", conditions: [condition] });
  const rows: [string, Partial<StepResults>, string | undefined, string, string][] = [
    [
      "S5 lookup error",
      { podError: "x" },
      "Unknown",
      "PodSchedulingUnknown",
      "Pod state is unknown. Pod scheduling cannot be determined",
    ],
    ["gone pod", {}, undefined, "", ""],
    ["stranger", { pod: foreign }, undefined, "", ""],
    [
      "verbatim Unschedulable",
      { pod: scheduled({ type: "PodScheduled", status: "False", reason: "Unschedulable", message: "0/3 nodes" }) },
      "False",
      "Unschedulable",
      "0/3 nodes",
    ],
    [
      "verbatim SchedulingGated",
      { pod: scheduled({ type: "PodScheduled", status: "False", reason: "SchedulingGated", message: "gated" }) },
      "False",
      "SchedulingGated",
      "gated",
    ],
    ["empty reason, True", { pod: scheduled({ type: "PodScheduled", status: "True" }) }, "True", "PodScheduled", ""],
    [
      "empty reason, False",
      { pod: scheduled({ type: "PodScheduled", status: "False", reason: "" }) },
      "False",
      "PodSchedulingUnknown",
      "",
    ],
    [
      "reason the API would refuse",
      { pod: scheduled({ type: "PodScheduled", status: "False", reason: "not a reason!" }) },
      "False",
      "PodSchedulingUnknown",
      "",
    ],
    [
      "nothing reported",
      { pod: withStatus({ phase: "Pending" }) },
      "Unknown",
      "PodSchedulingUnknown",
      "Pod has not reported a PodScheduled condition yet",
    ],
  ];
  test.each(rows)("podScheduledVerdict: S1 %s", (_title, parts, status, reason, message) => {
    const verdict = podScheduledVerdict(running, results(parts));
    expect(verdict).toEqual(status === undefined ? undefined : { type: "PodScheduled", status, reason, message });
  });
});

describe("readyVerdict", () => {
  const wantsService = aSandbox({ spec: { service: true } });
  const noService = aSandbox({ spec: { service: false } });
  const ready = readyPodStatus();
  const rows: [string, Sandbox, Partial<StepResults>, string, string, string][] = [
    [
      "several pods beat other errors",
      running,
      { multiplePods: "many", errors: ["many", "pvc"] },
      "False",
      "MultiplePods",
      "many",
    ],
    ["errors are joined", running, { pod: aPod(), errors: ["a", "b"] }, "False", "ReconcilerError", "Error seen: a\nb"],
    ["impossible spec", running, { invalid: "no way" }, "False", "InvalidConfiguration", "no way"],
    ["suspending", suspended, { pod: aPod() }, "False", "SandboxSuspended", "Sandbox is suspending"],
    ["suspended", suspended, {}, "False", "SandboxSuspended", "Sandbox is suspended"],
    [
      "succeeded pod",
      running,
      { pod: withStatus({ phase: "Succeeded" }) },
      "False",
      "PodSucceeded",
      "Pod completed successfully",
    ],
    ["failed pod", running, { pod: withStatus({ phase: "Failed" }) }, "False", "PodFailed", "Pod failed"],
    ["ready", running, { pod: aPod() }, "True", "DependenciesReady", "Pod is Ready"],
    ["no pod yet", running, {}, "False", "DependenciesNotReady", "Pod does not exist"],
    [
      "fresh pod without phase",
      running,
      { pod: withStatus({}) },
      "False",
      "DependenciesNotReady",
      "Pod exists with phase: ",
    ],
    [
      "phase Unknown",
      running,
      { pod: withStatus({ phase: "Unknown" }) },
      "False",
      "DependenciesNotReady",
      "Pod exists with phase: Unknown",
    ],
    [
      "running, not ready",
      running,
      { pod: withStatus({ phase: "Running" }) },
      "False",
      "DependenciesNotReady",
      "Pod is Running but not Ready",
    ],
    [
      "ready without address",
      running,
      { pod: withStatus({ ...ready, podIPs: [] }) },
      "False",
      "DependenciesNotReady",
      "Pod is Ready but has no podIPs yet",
    ],
    [
      "terminating pod that says Ready",
      running,
      { pod: aPod({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }) },
      "False",
      "DependenciesNotReady",
      "Pod is terminating",
    ],
    [
      "terminating pod whose containers have ended",
      running,
      { pod: aPod({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" }, status: { phase: "Failed" } }) },
      "False",
      "DependenciesNotReady",
      "Pod is terminating",
    ],
    [
      "service wanted and there",
      wantsService,
      { pod: aPod(), serviceExists: true },
      "True",
      "DependenciesReady",
      "Pod is Ready; Service Exists",
    ],
    [
      "service wanted and missing",
      wantsService,
      { pod: aPod() },
      "False",
      "DependenciesNotReady",
      "Pod is Ready; Service does not exist",
    ],
    [
      "service unset and there",
      running,
      { pod: aPod(), serviceExists: true },
      "True",
      "DependenciesReady",
      "Pod is Ready; Service Exists",
    ],
    ["service refused", noService, { pod: aPod() }, "True", "DependenciesReady", "Pod is Ready"],
    [
      "a failed pod that will be replaced",
      running,
      { pod: withStatus({ phase: "Failed" }), recovery: { kind: "wait", untilMs: 1, attempt: 2, retriesMax: 6 } },
      "False",
      "DependenciesNotReady",
      "Pod failed; replacement 2 of 6 follows",
    ],
  ];
  test.each(rows)("readyVerdict: S1, S2 %s", (_title, sandbox, parts, status, reason, message) => {
    const verdict = readyVerdict(sandbox, effectiveMode(sandbox, epochMs), results(parts));
    expect(verdict).toEqual({ type: "Ready", status, reason, message });
  });
});
