import type { PersistentVolume, PersistentVolumeClaim } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import type { Volume } from "../host/volume.ts";
import { type Growth, planGrowth } from "./volume-expansion.ts";

const mebibyte = 2 ** 20;

function volume(storage: string): PersistentVolume {
  return { apiVersion: "v1", kind: "PersistentVolume", metadata: { name: "v" }, spec: { capacity: { storage } } };
}

function claim(storage: string): PersistentVolumeClaim {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name: "c", namespace: "default" },
    spec: {},
    status: { phase: "Bound", capacity: { storage } },
  };
}

function onDisk(mebibytes: number, mounted: boolean): Volume {
  return { id: "v", sizeBytes: mebibytes * mebibyte, usedBytes: 0, mounted };
}

test.each<[string, string, Volume | undefined, Growth]>([
  ["as large as told", "32Mi", onDisk(32, true), { do: "nothing" }],
  ["grown and in use", "64Mi", onDisk(32, true), { do: "grow", sizeBytes: 64 * mebibyte }],
  ["grown and not in use", "64Mi", onDisk(32, false), { do: "wait" }],
  ["enlarged by the start of a pod", "64Mi", onDisk(64, true), { do: "report" }],
  ["grown before its first use", "64Mi", undefined, { do: "report" }],
])("planGrowth: a volume that is %s", (_title, capacity, disk, expected) => {
  expect(planGrowth(volume(capacity), claim("32Mi"), disk)).toEqual(expected);
});
