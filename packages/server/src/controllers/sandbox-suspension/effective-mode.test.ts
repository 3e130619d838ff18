import { annotationKeys, runtimeVersionCondition } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aCondition, aMember, aPod, aSandbox, at, epochMs } from "../testing/builders.ts";
import { effectiveMode, takenStamp } from "./effective-mode.ts";

const now = epochMs + 1_000_000;
const auto = { autoSuspension: { inactivityTimeoutSeconds: 600 } };
const active = (seconds: number, suspended?: number) => ({
  annotations: {
    [annotationKeys.lastActivityAt]: at(seconds),
    ...(suspended === undefined ? {} : { [annotationKeys.suspendedAt]: at(suspended) }),
  },
});

describe("effectiveMode", () => {
  const rows: [string, Parameters<typeof aSandbox>[0], string, string][] = [
    ["nothing set", {}, "Running", "user"],
    [
      "suspended by the user, never woken",
      { spec: { operatingMode: "Suspended" }, metadata: active(900, 100) },
      "Suspended",
      "user",
    ],
    [
      "suspended, wakes on traffic, no stamp yet",
      { spec: { operatingMode: "Suspended", wakePolicy: "OnTraffic" }, metadata: active(900) },
      "Suspended",
      "user",
    ],
    [
      "suspended, traffic before",
      { spec: { operatingMode: "Suspended", wakePolicy: "OnTraffic" }, metadata: active(100, 200) },
      "Suspended",
      "user",
    ],
    [
      "suspended, traffic after",
      { spec: { operatingMode: "Suspended", wakePolicy: "OnTraffic" }, metadata: active(300, 200) },
      "Running",
      "traffic",
    ],
    ["idle for longer than allowed", { spec: auto, metadata: active(300) }, "Suspended", "inactivity"],
    ["idle since creation", { spec: auto }, "Suspended", "inactivity"],
    ["active lately", { spec: auto, metadata: active(500) }, "Running", "user"],
    [
      "woken, then idle again",
      { spec: { ...auto, operatingMode: "Suspended" }, metadata: active(300, 200) },
      "Suspended",
      "inactivity",
    ],
    [
      "a time nobody can read",
      { spec: auto, metadata: { annotations: { [annotationKeys.lastActivityAt]: "soon" } } },
      "Suspended",
      "inactivity",
    ],
  ];
  test.each(rows)("effectiveMode: %s", (_title, parts, mode, cause) => {
    expect(effectiveMode(aSandbox(parts), now)).toMatchObject({ mode, cause });
  });
  const ready = (status: "True" | "False", seconds: number, reason: string, timeout = 5) => ({
    spec: { autoSuspension: { inactivityTimeoutSeconds: timeout } },
    status: { conditions: [{ ...aCondition("Ready", status), reason, lastTransitionTime: at(seconds) }] },
  });
  const idle: [string, Parameters<typeof aSandbox>[0], string][] = [
    ["not reconciled yet, born long ago", { spec: ready("False", 0, "").spec }, "Suspended"],
    ["still starting", { ...ready("False", 999, "DependenciesNotReady"), metadata: active(900) }, "Running"],
    ["Ready since a moment ago, born long ago", ready("True", 996, "DependenciesReady"), "Running"],
    ["Ready for as long as allowed", ready("True", 994, "DependenciesReady"), "Suspended"],
    ["Ready for long, used lately", { ...ready("True", 10, "DependenciesReady"), metadata: active(996) }, "Running"],
    ["asleep, last used before", { ...ready("False", 999, "SandboxSuspended"), metadata: active(990) }, "Suspended"],
    ["asleep, wanted again", { ...ready("False", 990, "SandboxSuspended"), metadata: active(999) }, "Running"],
    ["starting, last wanted a while ago", ready("False", 401, "DependenciesNotReady"), "Running"],
    ["not Ready for too long", ready("False", 399, "DependenciesNotReady"), "Suspended"],
    [
      "not Ready, allowed to be idle for longer than to start",
      ready("False", 300, "DependenciesNotReady", 800),
      "Running",
    ],
    [
      "resumed by its user while asleep",
      {
        ...ready("False", 500, "SandboxSuspended"),
        metadata: { annotations: { [annotationKeys.suspendedAt]: at(500) } },
      },
      "Running",
    ],
  ];
  test.each(idle)("effectiveMode: idle time: %s", (_title, parts, mode) => {
    expect(effectiveMode(aSandbox(parts), now).mode).toBe(mode);
  });
  test("effectiveMode: a suspension that no traffic ends is remembered where idleness could be taken for it", () => {
    const spec = { operatingMode: "Suspended", wakePolicy: "Never" } as const;
    expect(effectiveMode(aSandbox({ spec: { ...spec, ...auto } }), now).stampSuspendedAt).toBe(true);
    expect(effectiveMode(aSandbox({ spec }), now)).toEqual({ mode: "Suspended", cause: "user", rung: "Stop" });
  });
  test("effectiveMode: a member that waits in a pool is not idle, and is not from the moment a claim takes it", () => {
    const { status } = ready("True", 0, "DependenciesReady");
    const member = aMember("m", { spec: auto, status });
    expect(effectiveMode(member, now)).toEqual({ mode: "Running", cause: "user" });
    const claimed = { ownerReferences: [], annotations: { ...takenStamp(member, now) } };
    expect(effectiveMode(aMember("m", { spec: auto, status, metadata: claimed }), now)).toEqual({
      mode: "Running",
      cause: "user",
      changesAtMs: now + 600_000,
    });
    expect(takenStamp(aMember("m"), now)).toEqual({});
  });
  test("effectiveMode: an awake Sandbox says when it falls asleep", () => {
    const { status } = ready("True", 100, "DependenciesReady");
    const sandbox = aSandbox({ spec: auto, metadata: active(500), status });
    expect(effectiveMode(sandbox, now).changesAtMs).toBe(epochMs + 1_100_000);
  });

  const asked = (type: "Stop" | "Freeze" | "Hibernate") =>
    aSandbox({ spec: { operatingMode: "Suspended", suspensionStrategy: { type } } });
  const ours = { type: runtimeVersionCondition, status: "True" };
  const podIn = (phase: string, conditions: { type: string; status: string }[] = []) =>
    aPod({ status: { phase, conditions } });
  test.each([
    ["Stop, whatever the node", "Stop", podIn("Running"), "Suspended", "Stop"],
    ["no Pod: nothing is known", "Freeze", undefined, "Suspended", "Freeze"],
    ["a Pod that does not run yet: nothing is known", "Hibernate", podIn("Pending"), "Suspended", "Hibernate"],
    ["a node that answers", "Freeze", podIn("Running", [ours]), "Suspended", "Freeze"],
    [
      "a node that answers, and has lost the runtime",
      "Hibernate",
      podIn("Running", [{ ...ours, status: "False" }]),
      "Suspended",
      "Hibernate",
    ],
    ["a node that never answers", "Freeze", podIn("Running"), "Running", undefined],
    ["a Pod that failed has no memory left", "Freeze", podIn("Failed", [ours]), "Suspended", "Stop"],
    ["a Pod that is done, on any node", "Hibernate", podIn("Succeeded"), "Suspended", "Stop"],
  ] as const)("effectiveMode: rung: %s", (_title, type, pod, mode, rung) => {
    const found = effectiveMode(asked(type), now, pod);
    expect([found.mode, found.rung]).toEqual([mode, rung]);
    if (mode === "Running") expect(found.cause).toBe("strategy-unavailable");
  });

  const ladder = (parts: Parameters<typeof aSandbox>[0]) =>
    aSandbox({
      ...parts,
      spec: {
        autoSuspension: { inactivityTimeoutSeconds: 100, hibernateAfterSeconds: 400 },
        suspensionStrategy: { type: "Freeze" },
        ...parts?.spec,
      },
    });
  const wished = (agoSeconds: number, rung: "Freeze" | "Hibernate" = "Freeze") => ({
    status: { sleep: { id: String(now - agoSeconds * 1000), rung } },
  });
  const byUser = { spec: { operatingMode: "Suspended" as const }, metadata: active(0, 100) };
  test.each([
    ["not frozen yet", ladder({ metadata: active(300) }), "Freeze", undefined],
    ["frozen a moment ago", ladder({ metadata: active(300), ...wished(0) }), "Freeze", now + 300_000],
    ["frozen for as long as allowed", ladder({ metadata: active(300), ...wished(300) }), "Hibernate", undefined],
    ["hibernates already", ladder({ metadata: active(300), ...wished(0, "Hibernate") }), "Hibernate", undefined],
    ["frozen by its user: idle from then", ladder({ ...byUser, ...wished(300) }), "Freeze", now + 100_000],
    ["frozen by its user long ago", ladder({ ...byUser, ...wished(400) }), "Hibernate", undefined],
  ] as const)("effectiveMode: ladder: %s", (_title, sandbox, rung, changesAtMs) => {
    expect(effectiveMode(sandbox, now)).toMatchObject({ mode: "Suspended", rung });
    expect(effectiveMode(sandbox, now).changesAtMs).toBe(changesAtMs);
  });

  test("effectiveMode: one whose memory could not be restored waits for its user, however idle", () => {
    const conditions = [aCondition("Ready", "False", { reason: "RestoreFailed" })];
    const sandbox = aSandbox({ spec: auto, status: { conditions } });
    expect(effectiveMode(sandbox, now)).toEqual({ mode: "Running", cause: "user" });
    const edited = aSandbox({ spec: auto, status: { conditions }, metadata: { generation: 2 } });
    expect(effectiveMode(edited, now).mode).toBe("Suspended");
  });
});
