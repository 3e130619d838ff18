import type { PodSpec, Sandbox, SandboxSnapshot } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { partHostId } from "../container-id.ts";
import { keptLayerKey } from "../pods/kept-layer.ts";
import type { PodRecord } from "../pods/pod-record.ts";
import { snapshotVolumeId } from "../pods/snapshot-record.ts";
import { planSource, type SourceQuestion } from "./plan-source.ts";

const snapshotUid = "5a0b";
const sandboxUid = "b0c5";
const podUid = "90d1";

const snapshot = (memory?: boolean): SandboxSnapshot =>
  ({
    metadata: { name: "point", namespace: "default", uid: snapshotUid },
    spec: { sandboxName: "box", ...(memory !== undefined && { memory }) },
  }) as SandboxSnapshot;

const sandbox = (spec: Partial<PodSpec> = {}, rest: Partial<Sandbox["spec"]> = {}): Sandbox => ({
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: { name: "box", namespace: "default", uid: sandboxUid },
  spec: { podTemplate: { spec: { containers: [{ name: "main" }], ...spec } }, ...rest },
});

const state = partHostId(podUid, "node", "state");
const scratch = partHostId(podUid, "volume", "scratch");
const record: PodRecord = {
  version: 1,
  uid: podUid,
  namespace: "default",
  name: "box",
  runtime: "runsc",
  sandboxUid,
  isPrepared: true,
  cgroup: podUid,
  volumes: [],
  emptyDirs: [scratch, state],
  files: [],
  containers: {},
  startedAt: "2026-01-01T00:00:00Z",
};
const hibernated = { ...record, isHibernated: true };
const layer = { key: keptLayerKey(sandboxUid, "main"), sizeBytes: 1, usedBytes: 1, mounted: false };
const layerImage = {
  kind: "writable",
  from: layer.key,
  id: keptLayerKey(snapshotUid, "main"),
  part: { is: "layer", container: "main" },
};
const laterLayer = { ...layer, key: keptLayerKey(sandboxUid, "main", 2) };
const returned: Sandbox = {
  ...sandbox(),
  status: { restoredFrom: { name: "point", uid: "1", generation: 2, startedAt: "2026-01-01T00:00:00Z" } },
};
const stateImage = {
  kind: "empty-dir",
  from: state,
  id: partHostId(snapshotUid, "node", "state"),
  part: { is: "state" },
};
const scratchImage = {
  kind: "empty-dir",
  from: scratch,
  id: partHostId(snapshotUid, "volume", "scratch"),
  part: { is: "volume", name: "scratch" },
};
const withScratch = sandbox({ volumes: [{ name: "scratch", emptyDir: {} }] });
const named = sandbox({ volumes: [{ name: "home", persistentVolumeClaim: { claimName: "home" } }] });
const owning = sandbox({}, { volumeClaimTemplates: [{ metadata: { name: "work" }, spec: {} }] });
const claimImage = {
  kind: "volume",
  from: "pvc-1",
  id: snapshotVolumeId(snapshotUid, "work"),
  part: { is: "claim", name: "work" },
};
const whole = [layerImage, stateImage, scratchImage];

test.each<[string, Partial<SourceQuestion>, object]>([
  ["nothing on this node: is another's", { layers: [], records: [] }, { from: "elsewhere" }],
  [
    "the layer of another Sandbox: is another's",
    { layers: [{ ...layer, key: keptLayerKey("beef", "main") }], records: [] },
    { from: "elsewhere" },
  ],
  ["runs: memory with layer and directories", {}, { from: "running", record, images: whole }],
  ["starts, ends or falls asleep: is looked at again", { isWhole: () => false }, { from: "moving" }],
  [
    "is hibernated: its memory with layer and directories",
    { records: [hibernated] },
    { from: "hibernated", record: hibernated, images: whole },
  ],
  ["is stopped: files alone", { records: [] }, { from: "files", images: [layerImage] }],
  [
    "is stopped after it went back to a snapshot: the files since then",
    { records: [], layers: [layer, laterLayer], sandbox: returned },
    { from: "files", images: [{ ...layerImage, from: laterLayer.key }] },
  ],
  [
    "runs after it went back to a snapshot: the files that it runs with",
    { records: [{ ...record, layerGeneration: 2 }], layers: [layer, laterLayer] },
    {
      from: "running",
      record: { ...record, layerGeneration: 2 },
      images: [{ ...layerImage, from: laterLayer.key }, stateImage, scratchImage],
    },
  ],
  ["without memory: files alone", { snapshot: snapshot(false) }, { from: "files", images: [layerImage] }],
  [
    "without memory and without a layer yet: is looked at again",
    { snapshot: snapshot(false), layers: [] },
    { from: "moving" },
  ],
  [
    "is stopped and memory is asked for: refuses",
    { snapshot: snapshot(true), records: [] },
    { from: "refused", message: expect.stringContaining("has no memory") },
  ],
  [
    "runs under runc: refuses",
    { records: [{ ...record, runtime: "runc" }] },
    { from: "refused", message: expect.stringContaining("runsc alone") },
  ],
  [
    "has an emptyDir in memory: refuses",
    { sandbox: sandbox({ volumes: [{ name: "fast", emptyDir: { medium: "Memory" } }] }) },
    { from: "refused", message: expect.stringContaining('emptyDir "fast" is in memory') },
  ],
  [
    "names a claim of another: refuses memory",
    { sandbox: named },
    { from: "refused", message: expect.stringContaining('volume "home" is of a claim that is not') },
  ],
  [
    "names a claim of another, without memory: files alone",
    { sandbox: named, snapshot: snapshot(false) },
    { from: "files", images: [layerImage] },
  ],
  [
    "has claims of its own: their volumes are part of it",
    { sandbox: owning, records: [] },
    { from: "files", images: [layerImage, claimImage] },
  ],
  [
    "has a claim of its own that is not there: is looked at again",
    { sandbox: owning, claims: new Map() },
    { from: "moving" },
  ],
])("planSource: %s", (_title, question, expected) => {
  const base: SourceQuestion = {
    snapshot: snapshot(),
    sandbox: withScratch,
    records: [record],
    layers: [layer],
    claims: new Map([["work", "pvc-1"]]),
    isWhole: () => true,
  };
  expect(planSource({ ...base, ...question })).toEqual(expected);
});
