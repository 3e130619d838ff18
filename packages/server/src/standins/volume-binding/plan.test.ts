import type { PersistentVolume, PersistentVolumeClaim, Pod, StorageClass } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { type ObservedClaim, planClaim, planVolume } from "./plan.ts";

const storageClass = {
  apiVersion: "storage.k8s.io/v1",
  kind: "StorageClass",
  metadata: { name: "local" },
  provisioner: "agent-sandbox.dev/local",
  allowVolumeExpansion: true,
} satisfies StorageClass;

function claim(part: { spec?: object; status?: object; metadata?: object } = {}): PersistentVolumeClaim {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { namespace: "a", name: "c", uid: "u", finalizers: ["kubernetes.io/pvc-protection"], ...part.metadata },
    spec: {
      accessModes: ["ReadWriteOnce"],
      storageClassName: "local",
      resources: { requests: { storage: "1Gi" } },
      ...part.spec,
    },
    ...(part.status === undefined ? {} : { status: part.status }),
  };
}

function volume(part: { spec?: object; status?: object; metadata?: object } = {}): PersistentVolume {
  return {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name: "pvc-u", uid: "v", finalizers: ["kubernetes.io/pv-protection"], ...part.metadata },
    spec: { capacity: { storage: "1Gi" }, accessModes: ["ReadWriteOnce"], storageClassName: "local", ...part.spec },
    ...(part.status === undefined ? {} : { status: part.status }),
  };
}

const plan = (part: Partial<ObservedClaim>) =>
  planClaim({ claim: claim(), storageClass, volumes: [], users: [], ...part }).map((action) => action.do);
const reference = { namespace: "a", name: "c", uid: "u" };
const mine = (part: object = {}) => volume({ spec: { claimRef: reference, ...part } });
const bound = { spec: { volumeName: "pvc-u" }, status: { phase: "Bound" } };
const deleted = { deletionTimestamp: "2026-01-01T00:00:00Z" };
const user = { apiVersion: "v1", kind: "Pod", metadata: { name: "p" } } as Pod;

test.each([
  ["our class: a volume is made", plan({}), ["create-volume"]],
  ["its volume is there: named", plan({ volumes: [mine()] }), ["name-volume"]],
  ["named: bound", plan({ claim: claim({ spec: { volumeName: "pvc-u" } }), volumes: [mine()] }), ["set-status"]],
  ["bound: nothing", plan({ claim: claim(bound), volumes: [mine()] }), []],
  [
    "bound and asking for more: grows",
    plan({
      claim: claim({ ...bound, spec: { ...bound.spec, resources: { requests: { storage: "2Gi" } } } }),
      volumes: [mine()],
    }),
    ["grow-volume"],
  ],
  [
    "it names another's volume: waits, and none is made",
    plan({
      claim: claim({ spec: { volumeName: "theirs" } }),
      volumes: [volume({ metadata: { name: "theirs" }, spec: { claimRef: { ...reference, uid: "other" } } })],
    }),
    ["set-status"],
  ],
  [
    "it names a volume that is not there: waits, and none is made",
    plan({ claim: claim({ spec: { volumeName: "theirs" }, status: { phase: "Pending" } }) }),
    [],
  ],
  [
    "it names another volume than the one that was made for it: waits for that",
    plan({ claim: claim({ spec: { volumeName: "theirs" } }), volumes: [mine()] }),
    ["set-status"],
  ],
  ["another class: waits", plan({ storageClass: undefined }), ["set-status"]],
  ["a free volume of its class: taken", plan({ volumes: [volume()] }), ["reserve-volume"]],
  [
    "a free volume that is too small: not taken",
    plan({ volumes: [volume({ spec: { capacity: { storage: "1Mi" } } })] }),
    ["create-volume"],
  ],
  [
    "a volume of somebody else: not taken",
    plan({ volumes: [volume({ spec: { claimRef: { ...reference, uid: "other" } } })] }),
    ["create-volume"],
  ],
  ["bound and its volume lost: says so", plan({ claim: claim(bound) }), ["set-status"]],
  ["deleting while used: held", plan({ claim: claim({ metadata: deleted }), users: [user] }), []],
  ["deleting and free: released", plan({ claim: claim({ metadata: deleted }) }), ["release-claim"]],
])("planClaim: %s", (_title, actual, expected) => {
  expect(actual).toEqual(expected);
});

const provisioned = { metadata: { annotations: { "pv.kubernetes.io/provisioned-by": "agent-sandbox.dev/local" } } };
test.each([
  ["without a claim: available", planVolume(volume(), undefined), [{ do: "set-phase", phase: "Available" }]],
  ["claimed and named: bound", planVolume(mine(), claim(bound)), [{ do: "set-phase", phase: "Bound" }]],
  ["claimed, not named yet: waits", planVolume(mine(), claim()), []],
  [
    "claim gone, policy Delete: deleted",
    planVolume(
      volume({ ...provisioned, spec: { claimRef: reference, persistentVolumeReclaimPolicy: "Delete" } }),
      undefined,
    ),
    [{ do: "delete-volume" }],
  ],
  [
    "claim gone, policy Retain: released",
    planVolume(
      volume({ ...provisioned, spec: { claimRef: reference, persistentVolumeReclaimPolicy: "Retain" } }),
      undefined,
    ),
    [{ do: "set-phase", phase: "Released" }],
  ],
  [
    "a namesake's claim: released",
    planVolume(mine(), claim({ metadata: { uid: "later" } })),
    [{ do: "set-phase", phase: "Released" }],
  ],
  [
    "deleting while claimed: held",
    planVolume(volume({ metadata: deleted, spec: { claimRef: reference } }), claim(bound)),
    [],
  ],
  [
    "made for a claim that names another: goes",
    planVolume(
      volume({
        metadata: { annotations: { "pv.kubernetes.io/provisioned-by": "agent-sandbox.dev/local" } },
        spec: { claimRef: reference, persistentVolumeReclaimPolicy: "Delete" },
      }),
      claim({ spec: { volumeName: "theirs" } }),
    ),
    [{ do: "delete-volume" }],
  ],
  [
    "deleting while kept for a claim that is not there: let go",
    planVolume(volume({ metadata: deleted, spec: { claimRef: { namespace: "a", name: "c" } } }), undefined),
    [{ do: "release-volume" }],
  ],
  ["deleting and free: let go", planVolume(volume({ metadata: deleted }), undefined), [{ do: "release-volume" }]],
])("planVolume: %s", (_title, actual, expected) => {
  expect(actual).toEqual(expected);
});
