import fc from "fast-check";
import { expect, test } from "vitest";
import {
  formatMicroTime,
  formatTimestamp,
  formatTimestampMs,
  formatTimestampNanos,
  parseTimestamp,
  parseTimestampNanos,
  tryParseTimestamp,
} from "./timestamp.ts";

test.each([
  ["1970-01-01T00:00:00Z", 0],
  ["2026-01-02T03:04:05Z", Date.UTC(2026, 0, 2, 3, 4, 5)],
  ["2026-01-02T03:04:05.678Z", Date.UTC(2026, 0, 2, 3, 4, 5, 678)],
  ["2026-01-02T03:04:05.678999999Z", Date.UTC(2026, 0, 2, 3, 4, 5, 678)],
  ["2026-01-02T03:04:05+01:30", Date.UTC(2026, 0, 2, 1, 34, 5)],
  ["2026-01-02t03:04:05-00:30", Date.UTC(2026, 0, 2, 3, 34, 5)],
  ["1969-12-31T23:59:59.999500Z", -1],
  ["2024-02-29T00:00:00Z", Date.UTC(2024, 1, 29)],
])("parseTimestamp: %s", (text, ms) => {
  expect(parseTimestamp(text)).toBe(ms);
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
])("parseTimestamp: refuses %j", (text) => {
  expect(tryParseTimestamp(text)).toBeUndefined();
  expect(() => parseTimestamp(text)).toThrow("is not an RFC 3339 time");
});

test("formatTimestamp: whole seconds, rounded down", () => {
  expect(formatTimestamp(Date.UTC(2026, 0, 2, 3, 4, 5, 999))).toBe("2026-01-02T03:04:05Z");
  expect(formatMicroTime(Date.UTC(2026, 0, 2, 3, 4, 5, 9))).toBe("2026-01-02T03:04:05.009000Z");
  expect(formatTimestampMs(Date.UTC(2026, 0, 2, 3, 4, 5, 120))).toBe("2026-01-02T03:04:05.12Z");
});

test("formatTimestampNanos: parses back to the same instant", () => {
  const instants = fc.bigInt(-(10n ** 9n) * 10n ** 9n, 10n ** 9n * 4n * 10n ** 9n);
  fc.assert(fc.property(instants, (nanos) => parseTimestampNanos(formatTimestampNanos(nanos)) === nanos));
});
