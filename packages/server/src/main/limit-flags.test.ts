import { tmpdir } from "node:os";
import { expect, test } from "vitest";
import { defaultDiskFloorBytes, limitsOf, parseLimitFlags } from "./limit-flags.ts";

test("limit flags: quantities are read, and what is none is named", () => {
  const flags = { systemReservedMemory: "1Gi", systemReservedDisk: "", defaultPodMemory: "300M", podMaxPids: "200" };
  expect(parseLimitFlags(flags)).toEqual({
    errors: [],
    wishes: { reservedMemoryBytes: 2 ** 30, podMemoryBytes: 300_000_000, podPidsMax: 200 },
  });
  const { errors } = parseLimitFlags({ systemReservedMemory: "lots", defaultPodDisk: "-1Gi", podMaxPids: "many" });
  expect(errors).toEqual([
    "--pod-max-pids: 'many' is no number",
    "--system-reserved-memory: 'lots' is not a quantity such as 512Mi",
    "--default-pod-disk: '-1Gi' is not a quantity such as 512Mi",
  ]);
});

test("limit flags: a reserve that leaves nothing is refused by its flag", async () => {
  await expect(limitsOf({ systemReservedMemory: "1Ei" }, tmpdir())).rejects.toThrow(
    "--system-reserved-memory leaves 0 bytes",
  );
});

test("limit flags: without any, an engine that does not run keeps as much of the disk free as one that does", async () => {
  const { reservedDiskBytes } = await limitsOf({}, tmpdir());
  expect(await defaultDiskFloorBytes(tmpdir())).toBe(reservedDiskBytes);
});
