import { expect, test } from "vitest";
import { type ArchiveStep, archiveSnapshotName, archiveState, recalledArchiveOf } from "./archive-state.ts";
import type { SandboxArchive } from "./kinds.gen.ts";

const archive = (status?: SandboxArchive["status"]): SandboxArchive => ({
  apiVersion: "agent-sandbox.dev/v1alpha1",
  kind: "SandboxArchive",
  metadata: { name: "box" },
  spec: {},
  ...(status !== undefined && { status }),
});

test.each<[string, SandboxArchive["status"], ArchiveStep]>([
  ["nothing said", undefined, "pending"],
  ["a node has it", { nodeName: "one" }, "pending"],
  ["an id is given", { archiveID: "a" }, "storing"],
  ["its content is complete", { archiveID: "a", archivedAt: "t" }, "stored"],
  ["its Sandbox has left", { archiveID: "a", archivedAt: "t", leftAt: "t" }, "left"],
  ["its attempt was discarded", { discarded: ["a"], archivedAt: "t" }, "pending"],
])("archiveState: %s", (_title, status, step) => {
  expect(archiveState(archive(status)).step).toBe(step);
});

test("archiveSnapshotName: is the name of an object, and of this attempt alone", () => {
  expect(archiveSnapshotName("0a")).toBe("archive-0a");
});

test("recalledArchiveOf: a snapshot that a node takes of a Sandbox is of no archive", () => {
  const snapshot = {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    spec: { sandboxName: "b" },
  } as const;
  expect(recalledArchiveOf({ ...snapshot, metadata: { name: "s" } })).toBeUndefined();
  const annotations = { "agent-sandbox.dev/recall-of": "0a" };
  expect(recalledArchiveOf({ ...snapshot, metadata: { name: "s", annotations } })).toBe("0a");
});
