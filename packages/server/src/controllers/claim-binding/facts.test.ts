import { describe, expect, test } from "vitest";
import { aSandbox } from "../testing/builders.ts";
import type { ActionOutcome, ClaimAction } from "./actions.ts";
import { learn, nothingLearnt, type PassFacts } from "./facts.ts";

const reserve: ClaimAction = { do: "reserve", key: "default/m", poolUid: "p", metadata: {} };
const transfer: ClaimAction = { do: "transfer", name: "m", patch: { metadata: {} } };
const clear: ClaimAction = { do: "clear-reservation", name: "m", why: "deleted", metadata: {} };
const create: ClaimAction = {
  do: "create-sandbox",
  sandbox: aSandbox({ name: "c" }),
  poolName: "pool",
  reason: "pool-empty",
};
const failed: ActionOutcome = { kind: "failed", error: new Error("503") };

describe("learn", () => {
  const rows: [string, ClaimAction, ActionOutcome["kind"], Partial<PassFacts>][] = [
    ["a reservation proves the claim current", reserve, "done", { isClaimCurrent: true }],
    ["a refused reservation is counted, and the claim was read", reserve, "claim-changed", { isClaimCurrent: true }],
    ["a member of another claim is no refusal", reserve, "member-leased", { refused: nothingLearnt.refused }],
    ["a transfer brings a warm Sandbox", transfer, "done", { launched: { name: "m", launchType: "warm" } }],
    ["R04 a refused transfer may have been made before", transfer, "sandbox-changed", { asked: new Set(["m"]) }],
    ["a cleared reservation is remembered", clear, "done", { cleared: { name: "m", why: "deleted" } }],
    ["a create brings a cold Sandbox", create, "done", { launched: { name: "c", launchType: "cold" } }],
    ["R31 a create of a name that is taken brings none", create, "sandbox-changed", { asked: new Set(["c"]) }],
    [
      "what the server said of a Sandbox is its word",
      { do: "read-sandbox", name: "x" },
      "done",
      { asked: new Set(["x"]) },
    ],
  ];
  test.each(rows)("learn: %s", (_title, action, kind, expected) => {
    const facts = learn(nothingLearnt, action, { kind } as ActionOutcome);
    expect(facts).toMatchObject(expected);
    expect(facts.tried).toEqual(new Set([action.do]));
    expect(nothingLearnt.tried.size).toBe(0);
  });
  test("learn: refusals are counted for each write by itself", () => {
    const once = learn(nothingLearnt, reserve, { kind: "claim-changed" });
    const twice = learn(once, transfer, { kind: "sandbox-changed" });
    expect(twice.refused).toEqual({ reserve: 1, transfer: 1, "clear-reservation": 0 });
  });
  test("learn: R12 a failed clearing keeps the API's text out of the condition", () => {
    expect(learn(nothingLearnt, clear, failed).failure).toMatchObject({
      reason: "AdoptionConflict",
      message:
        'adoption write conflict: sandbox "m" deleted and reference cleanup failed; the next pass retries from a converged view',
      retry: true,
    });
  });
  test("learn: every other failure is said as it is", () => {
    expect(learn(nothingLearnt, create, failed).failure?.message).toBe("sandbox create error: 503");
    expect(learn(nothingLearnt, transfer, failed).failure).toMatchObject({ reason: "ReconcilerError", message: "503" });
  });
});
