import { describe, expect, test } from "vitest";
import { aClaim, epochMs } from "../testing/builders.ts";
import type { Candidate, Readiness } from "./pick-member.ts";
import { bindDeadlineMs, planStart } from "./start.ts";

const members = (...readiness: Readiness[]): Candidate[] =>
  readiness.map((each, index) => ({ key: `default/m${index}`, bornMs: index, node: "n", readiness: each }));
const step = (spec: Parameters<typeof aClaim>[0], candidates: readonly Candidate[] = [], ageMs = 0) =>
  planStart({ claim: aClaim(spec), candidates, firstSeenMs: epochMs, nowMs: epochMs + ageMs });

describe("planStart", () => {
  test("planStart: R21 ready first, then networked, then a short wait, then cold", () => {
    expect(step({}, members("pending", "networked", "ready"))).toMatchObject({
      do: "adopt",
      member: { key: "default/m2" },
    });
    expect(step({}, members("pending", "networked"))).toMatchObject({ do: "adopt", member: { key: "default/m1" } });
    expect(step({}, members("pending"), 1_999)).toEqual({ do: "wait", untilMs: epochMs + 2_000 });
    expect(step({}, members("pending"), 2_000)).toEqual({ do: "create", reason: "none-ready" });
    expect(step({})).toEqual({ do: "create", reason: "pool-empty" });
  });
  test("planStart: env and volumes start cold whatever the pool has", () => {
    const full = members("ready", "ready");
    expect(step({ spec: { env: [{ name: "A", value: "1" }] } }, full)).toEqual({ do: "create", reason: "claim-env" });
    expect(step({ spec: { volumeClaimTemplates: [{ spec: {} }] } }, full)).toEqual({
      do: "create",
      reason: "claim-volumes",
    });
  });
  test("planStart: ColdOnly and WarmOnly", () => {
    expect(step({ spec: { startPolicy: "ColdOnly" } }, members("ready"))).toEqual({ do: "create", reason: "policy" });
    expect(step({ spec: { startPolicy: "WarmOnly" } }, [], 60_000)).toMatchObject({
      do: "wait",
      problem: { reason: "WarmSandboxPending" },
    });
    expect(step({ spec: { startPolicy: "WarmOnly", env: [{ name: "A", value: "1" }] } })).toMatchObject({
      do: "refuse",
      problem: { reason: "InvalidConfiguration" },
    });
  });
  test("bindDeadlineMs: counts from creation", () => {
    expect(bindDeadlineMs(aClaim({ spec: { bindTimeoutSeconds: 5 } }))).toBe(epochMs + 5_000);
    expect(bindDeadlineMs(aClaim())).toBeUndefined();
  });
});
