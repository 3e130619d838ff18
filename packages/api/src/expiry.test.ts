import { expect, test } from "vitest";
import { expiryOf } from "./expiry.ts";
import type { Condition } from "./meta.ts";

const at = (seconds: number) => new Date(Date.UTC(2026, 0, 1) + seconds * 1000).toISOString().replace(".000", "");
const nowMs = Date.UTC(2026, 0, 1, 0, 1, 40); // second 100
const finished = (seconds: number, status: Condition["status"] = "True"): Condition => ({
  type: "Finished",
  status,
  reason: "PodSucceeded",
  message: "",
  lastTransitionTime: at(seconds),
});

test.each<[string, Parameters<typeof expiryOf>[0], object]>([
  ["nothing set", {}, { expired: false }],
  ["a shutdown time ahead", { shutdownTime: at(150) }, { expired: false, remainingMs: 50_000 }],
  ["a shutdown time now", { shutdownTime: at(100) }, { expired: true }],
  ["a shutdown time past", { shutdownTime: at(50) }, { expired: true }],
  ["a time to live without the end", { ttlSecondsAfterFinished: 0 }, { expired: false }],
  [
    "a time to live with a false end",
    { ttlSecondsAfterFinished: 0, conditions: [finished(50, "False")] },
    { expired: false },
  ],
  ["a time to live of zero", { ttlSecondsAfterFinished: 0, conditions: [finished(100)] }, { expired: true }],
  [
    "a time to live running",
    { ttlSecondsAfterFinished: 60, conditions: [finished(90)] },
    { expired: false, remainingMs: 50_000 },
  ],
  [
    "an earlier shutdown time",
    { shutdownTime: at(120), ttlSecondsAfterFinished: 60, conditions: [finished(90)] },
    { expired: false, remainingMs: 20_000 },
  ],
  [
    "a later shutdown time",
    { shutdownTime: at(900), ttlSecondsAfterFinished: 10, conditions: [finished(90)] },
    { expired: true },
  ],
  ["an end without a time to live", { conditions: [finished(0)] }, { expired: false }],
])("expiryOf: %s", (_what, input, expected) => {
  expect(expiryOf(input, nowMs)).toEqual(expected);
});
