import { chmodSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { archiveState, ignore, type SandboxArchive, sandboxArchives, sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../node/real-engine.ts";
import { EngineRouter } from "../router/engine-router.ts";
import { Box } from "./box.ts";
import { memoryOf, rememberingPod } from "./memory.ts";

let store: string;
let world: EngineRouter;
beforeAll(async () => {
  store = mkdtempSync("/var/tmp/as-archive-");
  // The engine's unprivileged processes pass through here.
  chmodSync(store, 0o711);
  world = await EngineRouter.open("--archive", path.join(store, "content"));
}, 180_000);
afterAll(async () => {
  await world?.[Symbol.asyncDispose]();
  rmSync(store, { recursive: true, force: true });
});

/** Files below the archive's directory. */
const stored = (): string[] =>
  readdirSync(path.join(store, "content"), { recursive: true, withFileTypes: true }).flatMap((entry) =>
    entry.isFile() ? [entry.name] : [],
  );

async function isThere(name: string): Promise<boolean> {
  const key = { namespace: "default", name };
  return (await world.engine.client.get(sandboxes, key).catch(ignore("NotFound"))) !== undefined;
}

/** Asks for an archive and resolves when the Sandbox has left. */
async function archive(name: string): Promise<void> {
  const metadata = { namespace: "default", name };
  const { client } = world.engine;
  const object = { apiVersion: "agent-sandbox.dev/v1alpha1", kind: "SandboxArchive", metadata, spec: {} };
  await client.create(sandboxArchives, object as SandboxArchive);
  await until(async () => archiveState(await client.get(sandboxArchives, metadata)).reason === "Archived");
}

test("archive: a hibernated sandbox leaves the machine, and comes back for a caller with its memory, its files and its address", async () => {
  const { engine } = world;
  const box = new Box(engine, "away", "Hibernate");
  await box.start(rememberingPod, { wakePolicy: "OnTraffic" } as never);
  await box.sh("head -c 3000000 /dev/urandom > /file; cp /file /scratch/");
  const sums = await box.sh("sha256sum /file /scratch/file");
  const before = await memoryOf(box);
  const address = (await box.object()).metadata.annotations?.["agent-sandbox.dev/address"];
  await box.sleep();
  // An engine that was stopped meanwhile has all that the saved memory refers to.
  engine.cli("down");
  await pause(500);
  engine.up();
  await engine.connect();
  await archive("away");
  expect(await isThere("away")).toBe(false);
  expect(stored().length).toBeGreaterThan(1);
  expect(engine.cli("ls", "--archived")).toMatch(/^away /m);
  await until(() => readdirSync(path.join(engine.hostDir, "snapshots")).length === 0);
  expect(readdirSync(path.join(engine.hostDir, "writable/kept"))).toEqual([]);
  const { status, text } = await world.call("away", "/", { port: 8000 });
  expect({ status, same: text.split(" ").slice(1).join(" ") }).toEqual({ status: 200, same: before.same });
  const after = await memoryOf(box);
  expect(after.same).toBe(before.same);
  expect(after.ticks).toBeGreaterThan(before.ticks);
  expect(await box.sh("sha256sum /file /scratch/file")).toBe(sums);
  expect((await box.object()).metadata.annotations?.["agent-sandbox.dev/address"]).toBe(address);
  const key = { namespace: "default", name: "away" };
  await until(async () => (await engine.client.get(sandboxArchives, key).catch(ignore("NotFound"))) === undefined);
  await until(() => stored().length === 0);
  await box.remove();
}, 240_000);
