import type { SandboxArchive, SandboxSnapshot } from "@agent-sandbox/api";
import { annotationKeys } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { type ArchiveDuty, type DutyObserved, planDuty } from "./plan-duty.ts";

const archiveID = "0123456789abcdef0123456789abcdef";

function archive(status: SandboxArchive["status"] = {}, spec: SandboxArchive["spec"] = {}): SandboxArchive {
  return {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxArchive",
    metadata: { namespace: "a", name: "box" },
    spec,
    status,
  };
}

function saying(reason: string, status: SandboxArchive["status"] = {}): SandboxArchive {
  const ready = {
    type: "Ready",
    status: "False",
    reason,
    message: "",
    lastTransitionTime: "2026-01-01T00:00:00Z",
  } as const;
  return archive({ ...status, conditions: [ready] });
}

function snapshot(isReady: boolean, annotations: Record<string, string> = {}): SandboxSnapshot {
  const ready = {
    type: "Ready",
    status: "True",
    reason: "SnapshotReady",
    message: "",
    lastTransitionTime: "",
  } as const;
  return {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: { namespace: "a", name: "snap", uid: "uid-snap", annotations },
    spec: { sandboxName: "box" },
    ...(isReady && { status: { conditions: [ready] } }),
  };
}

const mine = { nodeName: "n", archiveID, snapshot: { name: "snap", uid: "uid-snap" } };
const recalling = snapshot(false, { [annotationKeys.recallOf]: archiveID });

test.each<[string, Partial<DutyObserved>, ArchiveDuty["do"]]>([
  ["the files are here and a node is asked for", { archive: saying("NodePending"), hasFiles: true }, "claim"],
  ["the files are elsewhere", { archive: saying("NodePending") }, "nothing"],
  ["no node is asked for", { archive: saying("SandboxAwake"), hasFiles: true }, "nothing"],
  ["there is no archive", { archive: saying("NodePending"), hasFiles: true, hasArchive: false }, "refuse"],
  ["an archive was given since", { archive: saying("NoArchive"), hasFiles: true }, "claim"],
  ["another node has it", { archive: archive({ ...mine, nodeName: "m" }), snapshot: snapshot(true) }, "nothing"],
  ["one that lost its object", { archive: archive({}, { archiveID }) }, "adopt"],
  [
    "one that lost its object, without an archive",
    { archive: archive({}, { archiveID }), hasArchive: false },
    "nothing",
  ],
  ["the snapshot is not ready", { archive: archive(mine), snapshot: snapshot(false) }, "nothing"],
  ["the snapshot is ready", { archive: archive(mine), snapshot: snapshot(true) }, "store"],
  [
    "the snapshot is another of the name",
    { archive: archive({ ...mine, snapshot: { name: "snap", uid: "x" } }), snapshot: snapshot(true) },
    "nothing",
  ],
  ["it is stored", { archive: archive({ ...mine, archivedAt: "t" }), snapshot: snapshot(true) }, "nothing"],
  [
    "its Sandbox has left",
    { archive: archive({ ...mine, archivedAt: "t", leftAt: "t" }), snapshot: snapshot(true) },
    "nothing",
  ],
  [
    "it is recalled",
    { archive: archive({ ...mine, archivedAt: "t", leftAt: "t" }), snapshot: recalling },
    "bring-back",
  ],
  ["a recall before it has left", { archive: archive({ ...mine, archivedAt: "t" }), snapshot: recalling }, "nothing"],
  [
    "content is discarded, before anything else",
    { archive: archive({ ...mine, discarded: ["x"] }), snapshot: snapshot(true) },
    "remove",
  ],
  [
    "content is discarded, without an archive",
    { archive: archive({ nodeName: "n", discarded: ["x"] }), hasArchive: false },
    "refuse",
  ],
  ["nothing is left to do, without an archive", { archive: archive({ nodeName: "n" }), hasArchive: false }, "nothing"],
])("planDuty: %s", (_title, parts, expected) => {
  const duty = planDuty({
    archive: archive(),
    nodeName: "n",
    hasArchive: true,
    hasFiles: false,
    snapshot: undefined,
    ...parts,
  });
  expect(duty.do).toBe(expected);
});
