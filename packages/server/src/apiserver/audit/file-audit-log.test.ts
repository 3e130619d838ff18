import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { AuditEvent } from "./audit.ts";
import { FileAuditLog } from "./file-audit-log.ts";

const event: AuditEvent = {
  auditId: "1",
  receivedAtMs: 0,
  answeredAtMs: 5,
  user: { username: "jane", groups: [] },
  verb: "create",
  requestUri: "/api/v1/namespaces/a/pods?dryRun=All",
  object: { group: "", version: "v1", resource: "pods", subresource: "", namespace: "a", name: "p" },
  status: 201,
  decision: "allow",
  reason: "",
  requestObject: { kind: "Pod" },
};

let directory = "";
let path = "";
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "audit-"));
  path = join(directory, "audit.log");
});
afterEach(async () => {
  await rm(directory, { recursive: true });
});

async function lines(): Promise<Record<string, unknown>[]> {
  return (await readFile(path, "utf8"))
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
}

test("FileAuditLog: metadata says who did what, without bodies", async () => {
  const log = new FileAuditLog({ path, level: "metadata" });
  log.record(event);
  await log.close();
  const [line] = await lines();
  expect(line).toMatchObject({
    level: "Metadata",
    verb: "create",
    user: { username: "jane" },
    objectRef: { resource: "pods", name: "p" },
    responseStatus: { code: 201 },
  });
  expect(line).not.toHaveProperty("requestObject");
  expect((await stat(path)).mode & 0o777).toBe(0o600);
});

test("FileAuditLog: request adds bodies, except of secrets and tokens", async () => {
  const log = new FileAuditLog({ path, level: "request" });
  log.record(event);
  log.record({ ...event, object: { ...(event.object as never as object), resource: "secrets" } as never });
  log.record({
    ...event,
    object: { ...(event.object as never as object), resource: "serviceaccounts", subresource: "token" } as never,
  });
  await log.close();
  expect((await lines()).map((line) => "requestObject" in line)).toEqual([true, false, false]);
});

test("FileAuditLog: off writes nothing", async () => {
  const log = new FileAuditLog({ path, level: "off" });
  log.record(event);
  await log.close();
  expect(await readdir(directory)).toEqual([]);
});

test("FileAuditLog: files rotate by size and only so many are kept", async () => {
  const log = new FileAuditLog({ path, level: "metadata", fileSizeMaxBytes: 1200, backupsMax: 2 });
  for (let round = 0; round < 10; round++) {
    log.record(event);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await log.close();
  expect((await readdir(directory)).sort()).toEqual(["audit.log", "audit.log.1", "audit.log.2"]);
  expect((await stat(path)).size).toBeLessThanOrEqual(1200);
});

test("FileAuditLog: a full queue drops events and says how many", async () => {
  const log = new FileAuditLog({ path, level: "metadata", queueMaxBytes: 1000 });
  for (let round = 0; round < 5; round++) log.record(event);
  await new Promise((resolve) => setTimeout(resolve, 20));
  log.record(event);
  await log.close();
  expect((await lines()).at(-1)).toMatchObject({ annotations: { "agent-sandbox.dev/dropped-events": "4" } });
});
