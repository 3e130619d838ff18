import fc from "fast-check";
import { expect, test } from "vitest";
import { formatGoDuration, tryParseGoDuration } from "./go-duration.ts";

test.each([
  ["0", 0],
  ["5s", 5_000],
  ["-5s", -5_000],
  ["+1m", 60_000],
  ["1h30m", 5_400_000],
  ["1.5s", 1_500],
  [".5s", 500],
  ["1.s", 1_000],
  ["250ms", 250],
  ["10us", 0.01],
  ["10µs", 0.01],
  ["1h0m0.5s", 3_600_500],
])("tryParseGoDuration: %s is %d ms", (text, ms) => {
  expect(tryParseGoDuration(text)).toBe(ms);
});

test.each(["", "5", "s", "1d", "1 s", "1h 2m", "-", ".s", "1.2.3s", "1s!"])(
  "tryParseGoDuration: refuses %j",
  (text) => {
    expect(tryParseGoDuration(text)).toBeUndefined();
  },
);

test.each([
  [0, "0s"],
  [5_400_000, "1h30m0s"],
  [90_000, "1m30s"],
  [1_500, "1.5s"],
  [250, "250ms"],
  [0.01, "10µs"],
  [-1_500, "-1.5s"],
  [0.000_001, "1ns"],
])("formatGoDuration: %d ms is %s", (ms, text) => {
  expect(formatGoDuration(ms)).toBe(text);
});

test("formatGoDuration: parses back to the same duration", () => {
  fc.assert(
    fc.property(fc.integer({ min: -1e12, max: 1e12 }), (ms) => tryParseGoDuration(formatGoDuration(ms)) === ms),
  );
});
