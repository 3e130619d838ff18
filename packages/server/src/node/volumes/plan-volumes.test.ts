import type { PersistentVolume, PersistentVolumeClaim, Pod } from "@agent-sandbox/api";
import { localVolumeDriver } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { planVolumes, type VolumeQuestion } from "./plan-volumes.ts";

const pod: Pod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "p", namespace: "default", uid: "00000000-0000-4000-8000-000000000001" },
  spec: {
    containers: [{ name: "main", image: "host" }],
    volumes: [{ name: "data", persistentVolumeClaim: { claimName: "c" } }],
  },
};

const claim: PersistentVolumeClaim = {
  apiVersion: "v1",
  kind: "PersistentVolumeClaim",
  metadata: { name: "c", namespace: "default", uid: "00000000-0000-4000-8000-000000000002" },
  spec: { volumeName: "v", resources: { requests: { storage: "32Mi" } } },
  status: { phase: "Bound" },
};

function volumeOf(spec: NonNullable<PersistentVolume["spec"]>): PersistentVolume {
  return { apiVersion: "v1", kind: "PersistentVolume", metadata: { name: "v" }, spec };
}

function plan(found: ReturnType<VolumeQuestion["claim"]>): ReturnType<typeof planVolumes> {
  const none = (): undefined => undefined;
  const node = { name: "n", address: "127.0.0.1", cpuMillis: 1000, memoryBytes: 1, diskBytes: 1 };
  const sources = { configMap: none, secret: none, token: none, node };
  return planVolumes({ pod, storageUid: pod.metadata.uid ?? "", sources, claim: () => found, emptyDirBytesDefault: 1 });
}

test("planVolumes: a claim's volume has the size it asks for", () => {
  const volume = volumeOf({ csi: { driver: localVolumeDriver, volumeHandle: "v" } });
  expect(plan({ claim, volume })).toMatchObject({ ok: true, plan: { volumes: [{ sizeBytes: 32 * 2 ** 20 }] } });
});

test.each<[string, PersistentVolume | undefined, string]>([
  ["another driver's", volumeOf({ csi: { driver: "ebs.csi.aws.com", volumeHandle: "v" } }), "is not one of"],
  ["a directory of the host", volumeOf({ hostPath: { path: "/srv" } }), "is not one of"],
  ["unreadable", undefined, "cannot be read"],
])("planVolumes: a volume that is %s is never replaced by an empty one", (_title, volume, message) => {
  expect(plan({ claim, volume })).toMatchObject({ ok: false, message: expect.stringContaining(message) });
});
