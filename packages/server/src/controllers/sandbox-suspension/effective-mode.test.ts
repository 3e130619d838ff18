import { describe, expect, test } from "vitest";
import { aSandbox, at, epochMs } from "../testing/builders.ts";
import { lastActivityAnnotation, suspendedAtAnnotation } from "../well-known.ts";
import { effectiveMode } from "./effective-mode.ts";

const now = epochMs + 1_000_000;
const auto = { autoSuspension: { inactivityTimeoutSeconds: 600 } };
const active = (seconds: number, suspended?: number) => ({
  annotations: {
    [lastActivityAnnotation]: at(seconds),
    ...(suspended === undefined ? {} : { [suspendedAtAnnotation]: at(suspended) }),
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
      "freeze asked for",
      { spec: { operatingMode: "Suspended", suspensionStrategy: { type: "Freeze" } } },
      "Running",
      "strategy-unavailable",
    ],
    [
      "a time nobody can read",
      { spec: auto, metadata: { annotations: { [lastActivityAnnotation]: "soon" } } },
      "Suspended",
      "inactivity",
    ],
  ];
  test.each(rows)("effectiveMode: %s", (_title, parts, mode, cause) => {
    expect(effectiveMode(aSandbox(parts), now)).toMatchObject({ mode, cause });
  });
  test("effectiveMode: an awake Sandbox says when it falls asleep", () => {
    expect(effectiveMode(aSandbox({ spec: auto, metadata: active(500) }), now).changesAtMs).toBe(epochMs + 1_100_000);
  });
});
