import { expect, test } from "vitest";
import { nodeUser } from "../auth/components.ts";
import { MemoryReader } from "../auth/testing/memory-reader.ts";
import { NodeRestriction } from "./node-restriction.ts";
import { admit, object } from "./testing/admit.ts";

test("NodeRestriction: a node takes a snapshot on that no node has, and writes no other's", async () => {
  const rule = new NodeRestriction(new MemoryReader());
  const snapshot = (nodeName?: string) =>
    object("SandboxSnapshot", nodeName === undefined ? {} : { status: { nodeName } });
  const write = (before: string | undefined, after: string | undefined) =>
    admit(rule, {
      verb: "update",
      group: "agent-sandbox.dev",
      resource: "sandboxsnapshots",
      subresource: "status",
      oldObject: snapshot(before),
      object: snapshot(after),
      user: nodeUser("n"),
    });
  await write(undefined, "n");
  await write("n", "n");
  const refused = "can only write snapshots with status.nodeName set to itself";
  await expect(write(undefined, "m")).rejects.toThrow(refused);
  await expect(write(undefined, undefined)).rejects.toThrow(refused);
  await expect(write("m", "m")).rejects.toThrow(refused);
  await expect(write("m", "n")).rejects.toThrow(refused);
});
