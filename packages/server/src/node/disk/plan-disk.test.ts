import { expect, test } from "vitest";
import { fullMessage, type PodDisk, planEviction } from "./plan-disk.ts";

const mebibyte = 2 ** 20;
const gibibyte = 2 ** 30;

function disk(uid: string, usedBytes: number, sizeBytes = 10 * gibibyte): PodDisk {
  return { uid, parts: [{ name: "the writable layer of container main", sizeBytes, usedBytes }] };
}

test.each([
  ["a small one with what ext4 keeps for itself left", 64 * mebibyte, 62 * mebibyte, true],
  ["a small one with a tenth left", 64 * mebibyte, 57 * mebibyte, false],
  ["a large one with what ext4 keeps for itself left", 10 * gibibyte, 10 * gibibyte - 17 * mebibyte, true],
  ["a large one with little left", 10 * gibibyte, 10 * gibibyte - 100 * mebibyte, false],
  ["one without a size", 0, 0, false],
])("fullMessage: %s", (_name, sizeBytes, usedBytes, isFull) => {
  expect(fullMessage(disk("a", usedBytes, sizeBytes)) !== undefined).toBe(isFull);
});

test("fullMessage: names what is full", () => {
  expect(fullMessage(disk("a", 64 * mebibyte, 64 * mebibyte))).toBe(
    "no space is left on the writable layer of container main (64Mi)",
  );
});

const before = [disk("still", 5 * gibibyte), disk("slow", gibibyte), disk("fast", 0)];
const now = [disk("still", 5 * gibibyte), disk("slow", gibibyte + 100 * mebibyte), disk("fast", 400 * mebibyte)];

test("planEviction: above the floor nobody is ended", () => {
  expect(planEviction({ freeBytes: 2, floorBytes: 2, before, now })).toBeUndefined();
});

test("planEviction: below it, who grew the most", () => {
  expect(planEviction({ freeBytes: 1, floorBytes: 2, before, now })).toBe("fast");
});

test("planEviction: who does not grow is left alone, and so is who was not seen before", () => {
  expect(planEviction({ freeBytes: 1, floorBytes: 2, before: now, now })).toBeUndefined();
  expect(planEviction({ freeBytes: 1, floorBytes: 2, before: [], now })).toBeUndefined();
});
