import { type MemoryUse, memoryUse, type SandboxStatus } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { effectiveMode } from "../sandbox-suspension/effective-mode.ts";
import { aCondition, aPod, aSandbox, at, epochMs } from "../testing/builders.ts";
import { planExpiredMark, planExpiredStatus, planStatus, planStatusPatch, type StatusInput } from "./plan.ts";

function input(parts: Partial<StatusInput> = {}, results: Partial<StatusInput["results"]> = {}): StatusInput {
  const sandbox = parts.sandbox ?? aSandbox();
  return {
    sandbox,
    mode: effectiveMode(sandbox, epochMs),
    service: "clear",
    clusterDomain: "cluster.local",
    nowMs: epochMs,
    ...parts,
    results: {
      pod: undefined,
      podError: undefined,
      multiplePods: undefined,
      invalid: undefined,
      errors: [],
      serviceExists: false,
      recovery: { kind: "none" },
      sleep: { wish: undefined, stage: { name: "none" } },
      ...results,
    },
  };
}

describe("planStatus", () => {
  test("planStatus: the end of containers goes with their Pod (S13)", () => {
    const ended = { ...aCondition("ContainerEnded", "True"), reason: "Ended" };
    const sandbox = aSandbox({ status: { conditions: [ended] } });
    const types = (pod: StatusInput["results"]["pod"]) =>
      planStatus(input({ sandbox }, { pod })).conditions?.map(({ type }) => type);
    expect(types(undefined)).not.toContain("ContainerEnded");
    expect(types(aPod())).not.toContain("ContainerEnded");
  });

  test("planStatus: memory is what the Pod says, and what it was once a sleeper's Pod has gone", () => {
    const says = (use: MemoryUse) => aPod({ status: { phase: "Running", conditions: [memoryUse(use)] } });
    const awake = { residentBytes: 60, sharedBytes: 5 };
    const running = aSandbox({ status: { memory: { residentBytes: 50, sharedBytes: 5 } } });
    expect(planStatus(input({ sandbox: running }, { pod: says(awake) })).memory).toEqual(awake);
    expect(planStatus(input({ sandbox: running }, { pod: aPod() }))).not.toHaveProperty("memory");
    expect(planStatus(input({ sandbox: running }))).not.toHaveProperty("memory");
    const asleep = (memory: MemoryUse) => aSandbox({ spec: { operatingMode: "Suspended" }, status: { memory } });
    const gone = { residentBytes: 0, beforeSleepBytes: 60 };
    expect(planStatus(input({ sandbox: asleep(awake) })).memory).toEqual(gone);
    expect(planStatus(input({ sandbox: asleep({ residentBytes: 20, beforeSleepBytes: 60 }) })).memory).toEqual(gone);
    expect(planStatus(input({ sandbox: asleep(gone) })).memory).toEqual(gone);
  });

  test("planStatusPatch: what memory has no more does not stay below the field", () => {
    const before = { memory: { residentBytes: 60, sharedBytes: 5 } };
    expect(planStatusPatch(before, { memory: { residentBytes: 0, beforeSleepBytes: 60 } })).toEqual({
      memory: { residentBytes: 0, sharedBytes: null, beforeSleepBytes: 60 },
    });
  });

  test("planStatus: a ready Sandbox has exactly the reference's fields", () => {
    expect(planStatus(input({}, { pod: aPod() }))).toEqual({
      selector: "agents.x-k8s.io/sandbox-name-hash=374de8f5",
      podIPs: ["10.0.0.1"],
      podUID: "pod-my-sandbox",
      nodeName: "node-1",
      conditions: [
        {
          type: "Suspended",
          status: "False",
          reason: "NotSuspended",
          message: "Sandbox is not suspended",
          lastTransitionTime: at(0),
          observedGeneration: 1,
        },
        {
          type: "PodScheduled",
          status: "True",
          reason: "PodScheduled",
          message: "",
          lastTransitionTime: at(0),
          observedGeneration: 1,
        },
        {
          type: "Ready",
          status: "True",
          reason: "DependenciesReady",
          message: "Pod is Ready",
          lastTransitionTime: at(0),
          observedGeneration: 1,
        },
      ],
    });
  });

  test("planStatus: S7 twenty passes leave three conditions", () => {
    let status: SandboxStatus | undefined;
    for (let pass = 0; pass < 20; pass++) {
      const sandbox = aSandbox(status === undefined ? {} : { status });
      status = planStatus(input({ sandbox, nowMs: epochMs + pass * 1000 }, { pod: aPod() }));
    }
    expect(status?.conditions?.map((condition) => condition.type)).toEqual(["Suspended", "PodScheduled", "Ready"]);
  });

  test("planStatus: a reason alone keeps the transition time", () => {
    const old = aCondition("Ready", "False", { reason: "SandboxSuspended" });
    const sandbox = aSandbox({ metadata: { generation: 4 }, status: { conditions: [old] } });
    const ready = planStatus(input({ sandbox, nowMs: epochMs + 60_000 })).conditions?.find(
      ({ type }) => type === "Ready",
    );
    expect(ready).toMatchObject({ reason: "DependenciesNotReady", lastTransitionTime: at(0), observedGeneration: 4 });
  });

  test("planStatus: S3 a foreign Pod gives a selector and nothing else", () => {
    const status = planStatus(input({}, { pod: aPod({ metadata: { ownerReferences: [] } }) }));
    expect(status).toMatchObject({ selector: "agents.x-k8s.io/sandbox-name-hash=374de8f5" });
    expect(status).not.toHaveProperty("podIPs");
    expect(status).not.toHaveProperty("nodeName");
  });

  test("planStatus: S6 Finished and PodScheduled go when they are not produced, others stay", () => {
    const conditions = [
      aCondition("Finished", "True"),
      aCondition("PodScheduled", "True"),
      aCondition("Custom", "True"),
    ];
    const status = planStatus(input({ sandbox: aSandbox({ status: { conditions } }) }));
    expect(status.conditions?.map(({ type }) => type)).toEqual(["Custom", "Suspended", "Ready"]);
  });

  test("planStatus: a Service sets name and FQDN with the cluster's domain", () => {
    const status = planStatus(
      input({ service: "set", clusterDomain: "corp.example" }, { pod: aPod(), serviceExists: true }),
    );
    expect(status).toMatchObject({ service: "my-sandbox", serviceFQDN: "my-sandbox.default.svc.corp.example" });
  });

  test("planStatus: an error keeps the Service fields as they were", () => {
    const sandbox = aSandbox({ status: { service: "my-sandbox", serviceFQDN: "x" } });
    expect(planStatus(input({ sandbox, service: "keep" }))).toMatchObject({ service: "my-sandbox", serviceFQDN: "x" });
    expect(planStatus(input({ sandbox, service: "clear" }))).not.toHaveProperty("service");
  });
});

describe("planStatusPatch", () => {
  const notReady: SandboxStatus = { conditions: [aCondition("Ready", "False")] };
  const ready: SandboxStatus = { conditions: [aCondition("Ready", "True")] };
  test("planStatusPatch: equal statuses, empty lists included, need no write", () => {
    expect(planStatusPatch({ ...ready, podIPs: [] }, ready)).toBeUndefined();
  });
  test("planStatusPatch: S11 a node name alone waits until the Sandbox is Ready", () => {
    expect(planStatusPatch(notReady, { ...notReady, nodeName: "n" })).toBeUndefined();
    expect(planStatusPatch(ready, { ...ready, nodeName: "n" })).toEqual({ nodeName: "n" });
  });
  test("planStatusPatch: what went is sent as null and conditions are sent whole", () => {
    const after = { conditions: [aCondition("Ready", "True"), aCondition("Suspended", "False")] };
    expect(planStatusPatch({ ...ready, podIPs: ["1"] }, after)).toEqual({ podIPs: null, conditions: after.conditions });
  });
});

describe("planExpiredMark", () => {
  const conditions = [aCondition("Finished", "True"), aCondition("PodScheduled", "True"), aCondition("Ready", "True")];
  const sandbox = aSandbox({ status: { podIPs: ["1"], service: "s", conditions } });
  test("planExpiredMark: X2 keeps Finished and fields, drops PodScheduled", () => {
    const status = planExpiredMark(sandbox, epochMs + 1000);
    expect(status).toMatchObject({ podIPs: ["1"], service: "s" });
    expect(status.conditions?.map(({ type, reason }) => [type, reason])).toEqual([
      ["Finished", "Because"],
      ["Ready", "SandboxExpired"],
    ]);
  });
  test("planExpiredStatus: X3 after the teardown only conditions remain", () => {
    expect(Object.keys(planExpiredStatus(sandbox, epochMs))).toEqual(["conditions"]);
  });
});
