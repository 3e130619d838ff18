import { expect, test } from "vitest";
import { planLimits, sandboxesMemoryBytes } from "./limits.ts";

const mebibyte = 2 ** 20;
const gibibyte = 2 ** 30;
const machine = { memoryBytes: 16 * gibibyte, diskBytes: 100 * gibibyte, pidsMax: 10_000 };

test.each([
  ["a tenth of a large machine", 64 * gibibyte, Math.floor(6.4 * gibibyte)],
  ["half a GiB of a small one", 4 * gibibyte, 512 * mebibyte],
  ["half of a tiny one", 600 * mebibyte, 300 * mebibyte],
])("planLimits: memory that is reserved: %s", (_name, memoryBytes, reserved) => {
  const { limits, errors } = planLimits({}, { ...machine, memoryBytes });
  expect(errors).toEqual([]);
  expect(limits.reservedMemoryBytes).toBe(reserved);
  expect(sandboxesMemoryBytes(limits, memoryBytes)).toBe(memoryBytes - reserved);
});

test.each([
  ["a large machine's most", 64 * gibibyte, 4 * gibibyte],
  ["a quarter of what is left", 8 * gibibyte, Math.floor((8 * gibibyte - Math.floor(0.8 * gibibyte)) / 4)],
  ["a small machine's least", gibibyte, 512 * mebibyte],
])("planLimits: memory of a pod that names none: %s", (_name, memoryBytes, bytes) => {
  expect(planLimits({}, { ...machine, memoryBytes }).limits.podMemoryBytes).toBe(bytes);
});

test("planLimits: disk is kept free by share, within bounds, and process ids by share", () => {
  expect(planLimits({}, machine).limits).toMatchObject({ reservedDiskBytes: 5 * gibibyte, sandboxesPids: 9000 });
  expect(planLimits({}, { ...machine, diskBytes: 10 * gibibyte }).limits.reservedDiskBytes).toBe(gibibyte);
  expect(planLimits({}, { ...machine, diskBytes: 4096 * gibibyte }).limits.reservedDiskBytes).toBe(10 * gibibyte);
});

test("planLimits: what an operator decided wins, and what cannot be is named", () => {
  const wishes = { reservedMemoryBytes: gibibyte, podMemoryBytes: 100 * mebibyte, podPidsMax: 100 };
  expect(planLimits(wishes, machine)).toMatchObject({ limits: wishes, errors: [] });
  const { errors } = planLimits(
    {
      reservedMemoryBytes: 20 * gibibyte,
      reservedDiskBytes: 200 * gibibyte,
      podMemoryBytes: 1,
      podDiskBytes: 1,
      podPidsMax: 1,
    },
    machine,
  );
  expect(errors.map((text) => text.split(" ")[0])).toEqual([
    "--system-reserved-memory",
    "--system-reserved-disk",
    "--default-pod-memory",
    "--default-pod-disk",
    "--pod-max-pids",
  ]);
});
