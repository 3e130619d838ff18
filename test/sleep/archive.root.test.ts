import { readdirSync } from "node:fs";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../node/real-engine.ts";
import { EngineRouter } from "../router/engine-router.ts";
import { ArchiveDirectory } from "./archive-directory.ts";
import { Box } from "./box.ts";
import { memoryOf, rememberingPod } from "./memory.ts";

let store: ArchiveDirectory;
let world: EngineRouter;
beforeAll(async () => {
  store = new ArchiveDirectory();
  world = await EngineRouter.open("--archive", store.path);
}, 180_000);
afterAll(async () => {
  await world?.[Symbol.asyncDispose]();
  store[Symbol.dispose]();
});

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
  await box.leave();
  expect(await box.isThere()).toBe(false);
  expect(store.files().length).toBeGreaterThan(1);
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
  await until(async () => (await box.archive()) === undefined);
  await until(() => store.files().length === 0);
  await box.remove();
}, 240_000);
