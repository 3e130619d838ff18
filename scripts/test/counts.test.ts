import { expect, test } from "vitest";
import { countGoEvents, parsePytestSummary, parseVitestReport } from "./counts.ts";

const event = (fields: object): string => JSON.stringify({ Package: "p", ...fields });

test("countGoEvents: a package that does not build counts as one failure", () => {
  expect(countGoEvents([event({ Action: "fail" })])).toEqual({ passed: 0, failed: 1, skipped: 0 });
});

test("countGoEvents: a failed test is not counted again for its package", () => {
  const events = [
    event({ Action: "fail", Test: "TestA" }),
    event({ Action: "pass", Test: "TestB" }),
    event({ Action: "fail" }),
  ];
  expect(countGoEvents(events)).toEqual({ passed: 1, failed: 1, skipped: 0 });
});

test("parsePytestSummary: errors count as failures", () => {
  expect(parsePytestSummary("1 failed, 97 passed, 2 skipped, 1 error in 4.20s")).toEqual({
    passed: 97,
    failed: 2,
    skipped: 2,
  });
});

test("parseVitestReport: a runner that fell over is a failure even when no test failed", () => {
  const report = JSON.stringify({ numPassedTests: 5, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0 });
  expect(parseVitestReport(report, false)).toEqual({ passed: 5, failed: 1, skipped: 0 });
});
