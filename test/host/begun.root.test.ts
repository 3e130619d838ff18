import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { RunContainerRequest } from "../../packages/server/src/node/host/container.ts";
import { readSetup } from "../../scripts/checkout.ts";
import { stateOf, sweepAll } from "./contract-case.ts";
import { RealHost } from "./real-host.ts";
import { guestOf, SavedBench } from "./saved-bench.ts";
import { type GuestReport, guestProcess } from "./saved-guest.ts";
import { spoilOnceOpened } from "./spoiled-pages.ts";

let real: RealHost;
let bench: SavedBench;
beforeAll(async () => {
  real = await RealHost.open();
  bench = new SavedBench(real);
});
afterEach(async () => {
  expect((await real.host.sweep(sweepAll)).failed).toEqual([]);
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});

const begunOfState = () => path.join(real.hostDir, "snapshots/state/begun.json");
const inContainer = (file: string) => path.join(real.hostDir, "containers/b1", file);

/** A saved sandbox whose Pod has gone, and all that the next one needs but the container. */
async function saveAndRemove(memoryMiB = 0, reusable = false): Promise<GuestReport> {
  await bench.start("b0", memoryMiB);
  const before = await bench.answer("write saved,");
  await real.host.saveSandbox({ id: "b0", saved: "state", reusable });
  await bench.removePod("b0");
  await bench.prepareSlot();
  await bench.prepareRoot("b1", "kept");
  return before;
}

const restoring = (more: Partial<RunContainerRequest> = {}) =>
  guestOf("b1", { restoreFrom: { saved: "state", container: "b0" }, ...more });

async function appeared(file: string): Promise<void> {
  for (let tries = 0; !existsSync(file) || statSync(file).size === 0; tries += 1) {
    if (tries > 20_000) expect.unreachable(`${file} is not there`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

function sentryPid(): number {
  const pid = Number(readFileSync(inContainer("pid"), "utf8"));
  // Zero would be the test itself.
  expect(pid).toBeGreaterThan(1);
  return pid;
}

/** Kills the helper while a restore is on its way, and leaves the sentry waiting for it: stopped before it has loaded anything, it cannot be told to go on. */
async function killBeforeGoingOn(): Promise<void> {
  const running = expect(real.host.runContainer(restoring())).rejects.toMatchObject({ code: "unavailable" });
  await appeared(inContainer("pid"));
  process.kill(sentryPid(), "SIGSTOP");
  await real.kill();
  await running;
  expect(existsSync(begunOfState())).toBe(false);
  process.kill(sentryPid(), "SIGCONT");
}

test("begun restore: a page that cannot be read after the guest went on ends it, and the state is never used again", async () => {
  await saveAndRemove(256);
  const pages = path.join(real.hostDir, "snapshots/state/pages.img");
  const spoiling = spoilOnceOpened({ helperPid: real.pid, pages, work: real.work });
  const large = { process: guestProcess(256) };
  const running = real.host.runContainer(restoring(large));
  const putBack = await spoiling;
  // The call succeeds, and the sandbox ends after it, or while it is answered.
  await running;
  expect(JSON.parse(readFileSync(begunOfState(), "utf8"))).toMatchObject({ sandbox: "b1" });
  await expect(real.host.waitRestored({ id: "b1", waitMs: 60_000 })).rejects.toMatchObject({
    code: "restore-failed",
    message: expect.stringMatching(/could not be read after its guest had gone on.*resume --cold/),
  });
  await expect.poll(() => stateOf(real.host, "b1"), { timeout: 10_000 }).toMatchObject({ status: "stopped" });
  await real.host.deleteContainer({ id: "b1" });
  putBack();
  const refusal = { code: "restore-refused", message: expect.stringContaining("did not end") };
  await bench.prepareSlot();
  await expect(real.host.runContainer(restoring(large))).rejects.toMatchObject(refusal);
  await expect(real.host.copySaved({ from: "state", to: "copy" })).rejects.toMatchObject(refusal);
  await real.kill();
  await real.start();
  expect((await real.host.listSaved())[0]?.unusable).toContain("did not end");
  await real.host.discardSaved({ id: "state" });
});

test("begun restore: the helper is killed before the guest goes on: it is made anew from the whole state", async () => {
  const before = await saveAndRemove();
  await killBeforeGoingOn();
  const first = sentryPid();
  await real.start();
  await real.host.runContainer(restoring());
  expect(sentryPid()).not.toBe(first);
  expect(await bench.answer("write again,")).toMatchObject({ drawn: before.drawn, disk: "saved,again," });
  expect(await real.host.waitRestored({ id: "b1", waitMs: 20_000 })).toBe("restored");
});

test("begun restore: the helper is killed before the guest goes on, and the container is deleted: the state stays whole", async () => {
  const before = await saveAndRemove();
  await killBeforeGoingOn();
  await real.start();
  await real.host.deleteContainer({ id: "b1" });
  expect(real.processesOf("b1")).toEqual([]);
  expect((await real.host.listSaved())[0]?.unusable).toBeUndefined();
  await bench.prepareSlot();
  await real.host.runContainer(restoring());
  expect(await bench.answer()).toMatchObject({ drawn: before.drawn, disk: "saved," });
});

test("begun restore: the helper is killed between the mark and the guest's first step: the same sandbox goes on", async () => {
  const before = await saveAndRemove();
  await killBeforeGoingOn();
  const first = sentryPid();
  writeFileSync(begunOfState(), JSON.stringify({ at: new Date().toISOString(), sandbox: "b1" }));
  await real.start();
  expect(await real.host.runContainer(restoring())).toMatchObject({ status: "running", pid: first });
  expect(await bench.answer("write again,")).toMatchObject({ drawn: before.drawn, disk: "saved,again," });
  expect(await real.host.waitRestored({ id: "b1", waitMs: 20_000 })).toBe("restored");
  expect((await real.host.listSaved())[0]?.unusable).toMatch(/went on/);
});

test("begun restore: the helper is killed after the mark: the same sandbox goes on, and none is made of the state again", async () => {
  const before = await saveAndRemove();
  const running = real.host.runContainer(restoring()).catch(() => undefined);
  await appeared(begunOfState());
  await real.kill();
  await running;
  const first = sentryPid();
  await real.start();
  expect(await real.host.runContainer(restoring())).toMatchObject({ status: "running", pid: first });
  expect(await bench.answer("write again,")).toMatchObject({ drawn: before.drawn, disk: "saved,again," });
  expect(await real.host.waitRestored({ id: "b1", waitMs: 20_000 })).toBe("restored");
});

test.for([false, true])(
  "begun restore: helper and sentry are killed after the mark, reusable: %s: it failed, and is not begun anew",
  async (reusable) => {
    await saveAndRemove(0, reusable);
    const mark = reusable ? inContainer("begun.json") : begunOfState();
    const running = real.host.runContainer(restoring()).catch(() => undefined);
    await appeared(mark);
    await real.kill();
    await running;
    process.kill(sentryPid(), "SIGKILL");
    // Whether the helper had written down that it runs is a matter of the moment; here it had not.
    const record = JSON.parse(readFileSync(inContainer("record.json"), "utf8")) as Record<string, unknown>;
    writeFileSync(inContainer("record.json"), JSON.stringify({ ...record, running: false, pid: 0, startTicks: 0 }));
    await real.start();
    await expect(real.host.runContainer(restoring())).rejects.toMatchObject({ code: "restore-failed" });
    expect(await stateOf(real.host, "b1")).toBeUndefined();
    const { unusable } = (await real.host.listSaved())[0] ?? expect.unreachable("it stays");
    expect(unusable).toEqual(reusable ? undefined : expect.stringContaining("did not end"));
  },
);

test("begun restore: a build of runsc that does not wait has the mark before it is called", async () => {
  const dir = path.join(real.work, "other");
  mkdirSync(dir, { recursive: true });
  const text = "dev.agent-sandbox.restore-waits";
  const program = readFileSync(readSetup().runsc);
  const at = program.indexOf(text);
  expect(at).toBeGreaterThan(0);
  program.write(text.replace("waits", "stays"), at);
  real.runsc = path.join(dir, "runsc");
  writeFileSync(real.runsc, program, { mode: 0o755 });
  await real.kill();
  await real.start();
  try {
    const before = await saveAndRemove();
    await real.host.runContainer(restoring());
    expect(existsSync(begunOfState())).toBe(true);
    expect(await bench.answer("write again,")).toMatchObject({ drawn: before.drawn, disk: "saved,again," });
    expect(await real.host.waitRestored({ id: "b1", waitMs: 20_000 })).toBe("restored");
  } finally {
    await real.host.sweep(sweepAll);
    real.runsc = undefined;
    await real.kill();
    await real.start();
  }
});
