import type { Sandbox, SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import {
  annotationKeys,
  archiveFinalizer,
  archiveSnapshotName,
  controllerReference,
  keptSandbox,
  sandboxArchives,
} from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { anArchive, aPod, aSandbox, aSnapshot, at, epochMs } from "../testing/builders.ts";
import type { ArchiveObserved } from "./archive-plan.ts";
import { planArchive } from "./plan.ts";

const archiveID = "0123456789abcdef0123456789abcdef";
const newID = "f".repeat(32);
const snapshotName = archiveSnapshotName(archiveID);

const asleep = aSandbox({ spec: { operatingMode: "Suspended" }, status: { podUID: "pod-1" } });
const attempt = {
  nodeName: "node-1",
  archiveID,
  sandboxUID: asleep.metadata.uid ?? "",
  podUID: "pod-1",
  sandbox: keptSandbox(asleep) as Record<string, unknown>,
};
const stored = { ...attempt, archivedAt: at(1), storedBytes: 1, contentBytes: 2 };
const left = { ...stored, leftAt: at(2) };
const noted = { snapshot: { name: snapshotName, uid: "uid-snap" } };

function ready(status: SandboxArchive["status"] = {}, spec: SandboxArchive["spec"] = {}): SandboxArchive {
  return anArchive({ metadata: { finalizers: [archiveFinalizer] }, spec, status });
}

function own(
  state: Parameters<typeof aSnapshot>[0],
  metadata: SandboxSnapshot["metadata"] | object = {},
): SandboxSnapshot {
  const made = aSnapshot(state, { name: snapshotName });
  const ownerReferences = [controllerReference(sandboxArchives, ready())];
  return { ...made, metadata: { ...made.metadata, uid: "uid-snap", ownerReferences, ...metadata } };
}

function observe(parts: Partial<ArchiveObserved> = {}): ArchiveObserved {
  return {
    archive: ready(),
    sandbox: asleep,
    pods: [],
    snapshot: undefined,
    stale: [],
    nowMs: epochMs + 5_000,
    newID,
    ...parts,
  };
}

const tells = (reason: string, fields: object = {}) => ({
  do: "tell",
  status: { ...fields, conditions: [expect.objectContaining({ type: "Ready", reason })] },
});
const gaveUp = { do: "tell", status: expect.not.objectContaining({ archiveID: expect.anything() }) };

const recalled = aSandbox({
  metadata: { uid: "uid-recalled" },
  spec: { restoreFrom: { snapshotName } },
  status: { restoredFrom: { name: snapshotName, uid: "uid-snap" } },
});
const started: Sandbox = {
  ...recalled,
  status: { restoredFrom: { name: snapshotName, uid: "uid-snap", startedAt: at(4) } },
};

describe("planArchive: on the way there", () => {
  test.each<[string, Partial<ArchiveObserved>, object]>([
    [
      "nothing is done before the finalizer is there",
      { archive: anArchive() },
      { do: "prepare", metadata: { finalizers: [archiveFinalizer], ownerReferences: [] } },
    ],
    ["no Sandbox", { sandbox: undefined }, tells("SandboxNotFound")],
    ["a Sandbox that runs", { sandbox: aSandbox({ status: { podUID: "pod-1" } }) }, tells("SandboxAwake")],
    ["a Sandbox whose Pod is still there", { pods: [aPod()] }, tells("SandboxAwake")],
    [
      "a Sandbox that never ran",
      { sandbox: aSandbox({ spec: { operatingMode: "Suspended" } }) },
      tells("SandboxNotStarted"),
    ],
    ["no node has answered", {}, tells("NodePending")],
    [
      "a node has, and nothing is begun",
      { archive: ready({ nodeName: "node-1" }) },
      tells("SnapshotPending", { archiveID: newID, podUID: "pod-1", sandboxUID: asleep.metadata.uid }),
    ],
    ["begun, and no snapshot", { archive: ready(attempt) }, { do: "make-snapshot", name: snapshotName }],
    [
      "the snapshot is made and not noted",
      { archive: ready(attempt), snapshot: own("pending") },
      tells("SnapshotPending", noted),
    ],
    [
      "the snapshot is taken",
      { archive: ready({ ...attempt, ...noted }), snapshot: own("saving") },
      tells("SnapshotPending"),
    ],
    [
      "the snapshot failed",
      { archive: ready({ ...attempt, ...noted }), snapshot: own("failed") },
      tells("ArchiveFailed"),
    ],
    [
      "the snapshot is of somebody else",
      { archive: ready(attempt), snapshot: aSnapshot("ready", { name: snapshotName }) },
      tells("NameTaken"),
    ],
    ["the node stores", { archive: ready({ ...attempt, ...noted }), snapshot: own("ready") }, tells("Storing")],
    [
      "stored: the archive counts from now on",
      { archive: ready({ ...stored, ...noted }), snapshot: own("ready") },
      tells("SandboxLeaving", { leftAt: at(5) }),
    ],
    [
      "left, and the Sandbox is there: this version of it goes",
      { archive: ready({ ...left, ...noted }), snapshot: own("ready") },
      { do: "delete-sandbox", sandbox: asleep },
    ],
    [
      "left, and the Sandbox is going",
      { archive: ready(left), sandbox: { ...asleep, metadata: { ...asleep.metadata, deletionTimestamp: at(3) } } },
      { do: "wait" },
    ],
    [
      "left, and the snapshot is there",
      { archive: ready({ ...left, ...noted }), sandbox: undefined, snapshot: own("ready") },
      { do: "delete-snapshot" },
    ],
    ["left, and nothing else", { archive: ready({ ...left, ...noted }), sandbox: undefined }, tells("Archived")],
    [
      "left, and another Sandbox has the name",
      { archive: ready({ ...left, ...noted }), sandbox: aSandbox({ metadata: { uid: "other" } }) },
      tells("Archived"),
    ],
    [
      "a snapshot of another attempt goes first",
      { archive: ready(attempt), stale: [own("ready", { name: "archive-old" })] },
      { do: "delete-snapshot" },
    ],
  ])("planArchive: on the way there: %s", (_title, parts, expected) => {
    expect(planArchive(observe(parts))).toMatchObject(expected);
  });

  test.each<[string, Sandbox | undefined]>([
    ["has run in another Pod since", { ...asleep, status: { podUID: "pod-2" } }],
    ["is awake", aSandbox({ status: { podUID: "pod-1" } })],
    ["would come back as another", { ...asleep, metadata: { ...asleep.metadata, labels: { team: "blue" } } }],
    ["is another of the same name", { ...asleep, metadata: { ...asleep.metadata, uid: "other" } }],
    ["was deleted", undefined],
  ])(
    "planArchive: a Sandbox that %s ends every attempt that it has not left by, and is never deleted",
    (_title, sandbox) => {
      for (const status of [attempt, { ...attempt, ...noted }, { ...stored, ...noted }]) {
        const plan = planArchive(observe({ archive: ready(status), sandbox, snapshot: own("ready") }));
        expect(plan).toMatchObject(gaveUp);
        expect(plan).toMatchObject({ status: { discarded: [archiveID], nodeName: "node-1" } });
      }
      const late = planArchive(observe({ archive: ready({ ...left, ...noted }), sandbox }));
      expect(late.do).not.toBe("delete-sandbox");
    },
  );

  test("planArchive: a Sandbox that changed between the fence and its deletion stays", () => {
    const sandbox = { ...asleep, status: { podUID: "pod-2" } };
    expect(planArchive(observe({ archive: ready(left), sandbox }))).toMatchObject(gaveUp);
  });

  test("planArchive: one that idleness made goes where its Sandbox wakes, and one that a user made waits", () => {
    const sandbox = aSandbox({ status: { podUID: "pod-1" } });
    const metadata = { finalizers: [archiveFinalizer], annotations: { [annotationKeys.archiveCause]: "inactivity" } };
    expect(planArchive(observe({ sandbox, archive: anArchive({ metadata }) }))).toEqual({ do: "delete-archive" });
    expect(planArchive(observe({ sandbox }))).toMatchObject(tells("SandboxAwake"));
  });

  test("planArchive: a Sandbox that another object controls is left alone", () => {
    const owner = { apiVersion: "extensions.agents.x-k8s.io/v1beta1", kind: "SandboxClaim", name: "c", uid: "c" };
    const ownerReferences = [{ ...owner, controller: true }];
    const sandbox = { ...asleep, metadata: { ...asleep.metadata, ownerReferences } };
    const archive = anArchive({ metadata: { finalizers: [archiveFinalizer], ownerReferences: [owner] } });
    expect(planArchive(observe({ sandbox, archive }))).toMatchObject(tells("SandboxIsControlled"));
  });
});

describe("planArchive: on the way back", () => {
  const back = (status: SandboxArchive["status"] = left): SandboxArchive => ready(status, { recall: true });
  test.each<[string, Partial<ArchiveObserved>, object]>([
    ["before it has left it is called off", { archive: back({ ...stored, ...noted }) }, { do: "delete-archive" }],
    ["left, and the Sandbox is still there", { archive: back() }, { do: "delete-archive" }],
    [
      "nothing is there",
      { archive: back(), sandbox: undefined },
      { do: "make-snapshot", name: snapshotName, recallOf: archiveID },
    ],
    [
      "the snapshot is made and not noted",
      { archive: back(), sandbox: undefined, snapshot: own("pending") },
      tells("Recalling", noted),
    ],
    [
      "the node reads the store",
      { archive: back({ ...left, ...noted }), sandbox: undefined, snapshot: own("pending") },
      tells("Recalling"),
    ],
    [
      "the snapshot failed",
      { archive: back({ ...left, ...noted }), sandbox: undefined, snapshot: own("failed") },
      { do: "delete-snapshot" },
    ],
    [
      "the files are there",
      { archive: back({ ...left, ...noted }), sandbox: undefined, snapshot: own("ready") },
      { do: "make-sandbox", sandbox: { spec: { operatingMode: "Running", restoreFrom: { snapshotName } } } },
    ],
    [
      "the Sandbox is made and has not started",
      { archive: back({ ...left, ...noted }), sandbox: recalled, snapshot: own("ready") },
      tells("Recalling"),
    ],
    [
      "it has started",
      { archive: back({ ...left, ...noted }), sandbox: started, snapshot: own("ready") },
      { do: "delete-archive" },
    ],
    [
      "it has started and the snapshot is gone",
      { archive: back({ ...left, ...noted }), sandbox: started },
      { do: "delete-archive" },
    ],
    [
      "another Sandbox has the name",
      { archive: back(), sandbox: aSandbox({ metadata: { uid: "other" } }) },
      tells("NameTaken"),
    ],
    [
      "nobody wants it back any more, and it is made",
      { archive: ready({ ...left, ...noted }), sandbox: recalled },
      tells("Recalling"),
    ],
    [
      "one that has lost its object waits for a node",
      { archive: ready({}, { recall: true, archiveID }), sandbox: undefined },
      tells("NodePending"),
    ],
    [
      "one that has lost its object is taken over",
      { archive: ready({ nodeName: "node-1", archivedAt: at(1) }, { archiveID }), sandbox: undefined },
      tells("Archived", { archiveID, leftAt: at(5) }),
    ],
  ])("planArchive: on the way back: %s", (_title, parts, expected) => {
    expect(planArchive(observe(parts))).toMatchObject(expected);
  });

  test("planArchive: a time of its end that has passed is left out of the Sandbox that comes back", () => {
    const plan = (shutdownTime: string) => {
      const kept = keptSandbox(aSandbox({ spec: { shutdownTime } })) as Record<string, unknown>;
      const archive = back({ ...left, ...noted, sandbox: kept });
      return planArchive(observe({ archive, sandbox: undefined, snapshot: own("ready") }));
    };
    expect(plan(at(9))).toMatchObject({ sandbox: { spec: { shutdownTime: at(9) } } });
    expect(plan(at(1))).toMatchObject({ sandbox: { spec: expect.not.objectContaining({ shutdownTime: at(1) }) } });
  });

  test("planArchive: what is no Sandbox of its own name is not made", () => {
    const kept = { ...attempt.sandbox, metadata: { name: "victim", namespace: asleep.metadata.namespace } };
    const archive = back({ ...left, ...noted, sandbox: kept });
    expect(planArchive(observe({ archive, sandbox: undefined, snapshot: own("ready") }))).toMatchObject(
      tells("RecallFailed"),
    );
  });
});

describe("planArchive: at its end", () => {
  const ending = (status: SandboxArchive["status"]): SandboxArchive => {
    return anArchive({ metadata: { finalizers: [archiveFinalizer], deletionTimestamp: at(4) }, status });
  };
  const discarded = { discarded: [archiveID] };
  test.each<[string, Partial<ArchiveObserved>, object]>([
    ["nothing was begun", { archive: ending({}) }, { do: "release" }],
    ["an attempt is discarded", { archive: ending(attempt) }, tells("Removing", discarded)],
    [
      "left, and the Sandbox is gone: so does its content",
      { archive: ending(left), sandbox: undefined },
      tells("Removing", discarded),
    ],
    [
      "left, and the Sandbox is still there: it stays, whoever was about to delete it",
      { archive: ending(left) },
      { do: "call-off", sandbox: asleep, status: discarded },
    ],
    [
      "the Sandbox that comes back has not started: nothing is removed",
      { archive: ending({ ...left, ...noted }), sandbox: recalled },
      tells("Recalling", { archiveID }),
    ],
    ["it has started", { archive: ending({ ...left, ...noted }), sandbox: started }, tells("Removing", discarded)],
    [
      "the node has not removed it",
      { archive: ending({ nodeName: "node-1", ...discarded }) },
      tells("Removing", discarded),
    ],
    [
      "a snapshot of it is there",
      { archive: ending({ nodeName: "node-1" }), stale: [own("ready")] },
      { do: "delete-snapshot" },
    ],
  ])("planArchive: at its end: %s", (_title, parts, expected) => {
    expect(planArchive(observe(parts))).toMatchObject(expected);
  });

  test("planArchive: without the finalizer there is nothing to do at its end", () => {
    const archive = anArchive({ metadata: { deletionTimestamp: at(4), finalizers: ["other"] }, status: left });
    expect(planArchive(observe({ archive }))).toEqual({ do: "wait" });
  });
});
