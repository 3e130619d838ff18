import fc from "fast-check";
import { expect, test } from "vitest";
import { formatMicroTime, formatTimestamp, formatTimestampMs, tryParseTimestamp } from "./timestamp.ts";

test.each([
  ["1970-01-01T00:00:00Z", 0],
  ["2026-01-02T03:04:05Z", Date.UTC(2026, 0, 2, 3, 4, 5)],
  ["2026-01-02T03:04:05.678Z", Date.UTC(2026, 0, 2, 3, 4, 5, 678)],
  ["2026-01-02T03:04:05.678999999Z", Date.UTC(2026, 0, 2, 3, 4, 5, 678)],
  ["2026-01-02T03:04:05+01:30", Date.UTC(2026, 0, 2, 1, 34, 5)],
  ["2026-01-02t03:04:05-00:30", Date.UTC(2026, 0, 2, 3, 34, 5)],
  ["1969-12-31T23:59:59.999500Z", -1],
  ["2024-02-29T00:00:00Z", Date.UTC(2024, 1, 29)],
])("tryParseTimestamp: %s", (text, ms) => {
  expect(tryParseTimestamp(text)).toBe(ms);
});

test.each([
  "",
  "2026-01-02",
  "2026-01-02T03:04:05",
  "2026-01-02 03:04:05Z",
  "2026-13-02T03:04:05Z",
  "2026-02-30T03:04:05Z",
  "2025-02-29T00:00:00Z",
  "2026-01-02T24:00:00Z",
  "2026-01-02T03:60:00Z",
  "2026-01-02T03:04:60Z",
  "2026-01-02T03:04:05.Z",
  "2026-01-02T03:04:05+25:00",
  "tomorrow",
])("tryParseTimestamp: refuses %j", (text) => {
  expect(tryParseTimestamp(text)).toBeUndefined();
});

test("formatTimestamp: whole seconds, rounded down", () => {
  expect(formatTimestamp(Date.UTC(2026, 0, 2, 3, 4, 5, 999))).toBe("2026-01-02T03:04:05Z");
  expect(formatMicroTime(Date.UTC(2026, 0, 2, 3, 4, 5, 9))).toBe("2026-01-02T03:04:05.009000Z");
  expect(formatTimestampMs(Date.UTC(2026, 0, 2, 3, 4, 5, 120))).toBe("2026-01-02T03:04:05.12Z");
});

test("formatTimestampMs: parses back to the same instant", () => {
  const instants = fc.integer({ min: -(10 ** 12), max: 4 * 10 ** 12 });
  fc.assert(fc.property(instants, (ms) => tryParseTimestamp(formatTimestampMs(ms)) === ms));
});
