import { copyFileSync, mkdirSync } from "node:fs";
import path from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { RunContainerRequest } from "../../packages/server/src/node/host/container.ts";
import { readSetup } from "../../scripts/checkout.ts";
import { containerOf, processOf, stateOf, sweepAll } from "./contract-case.ts";
import { RealHost } from "./real-host.ts";
import { address, guestOf, SavedBench, slot } from "./saved-bench.ts";
import { askGuest, guestProcess } from "./saved-guest.ts";

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

test("saved sandbox: counter, deleted file, timer and listener go on after save, delete and restore, twice", async () => {
  await real.host.ensureVolume({ id: "vol", sizeBytes: 2 ** 24 });
  const mounts = [{ source: { kind: "volume", id: "vol" }, target: "/vol", readOnly: false }] as const;
  await bench.start("a0", 0, { mounts });
  let before = await bench.answer("write first,");
  for (const cycle of [1, 2]) {
    const [was, is] = [`a${cycle - 1}`, `a${cycle}`];
    before = await bench.answer();
    const saved = await real.host.saveSandbox({ id: was, saved: "state" });
    expect(saved).toMatchObject({ id: "state", containers: [{ id: was, root: true }] });
    expect(saved.memoryBytes).toBeGreaterThan(1 << 20);
    expect(saved.unusable).toBeUndefined();
    expect(await real.host.saveSandbox({ id: was, saved: "state" })).toEqual(saved);
    await bench.removePod(was);
    await real.host.releaseVolume({ id: "vol" });
    await new Promise((resolve) => setTimeout(resolve, 1000));
    await real.host.ensureVolume({ id: "vol", sizeBytes: 2 ** 24 });
    await bench.prepareSlot();
    await bench.prepareRoot(is, "kept");
    await real.host.runContainer(guestOf(is, { mounts, restoreFrom: { saved: "state", container: was } }));
    expect(await real.host.waitRestored({ id: is, waitMs: 20_000 })).toBe("restored");
    const after = await bench.answer("write again,");
    expect(after).toMatchObject({ drawn: before.drawn, deleted: "still here", hostname: "box", pid: before.pid });
    expect(after.disk).toBe(`${before.disk}again,`);
    expect(after.volume).toBe(after.disk);
    expect(after.ticks).toBeGreaterThanOrEqual(before.ticks);
    expect(after.monotonic).toBeGreaterThan(before.monotonic);
    expect(Math.abs(after.wall - Date.now() / 1000)).toBeLessThan(2);
    await expect.poll(() => askGuest(real, address)?.ticks ?? 0, { timeout: 10_000 }).toBeGreaterThan(after.ticks + 3);
    expect((await real.host.listSaved())[0]?.unusable).toMatch(/went on/);
    await real.host.discardSaved({ id: "state" });
    expect(await real.host.listSaved()).toEqual([]);
    expect(await stateOf(real.host, is)).toMatchObject({ status: "running" });
  }
});

test("saved sandbox: one that was made ahead and joined goes on, with both of its containers", async () => {
  await bench.prepareNetwork();
  await real.host.releaseSlot({ slot });
  await real.host.ensureSlot({ slot });
  const named = ["/bin/sh", "-c", "read name; hostname $name; echo ok; exec sleep 600"];
  const capable = { ...containerOf("w0", "runsc", named).process, capabilities: ["CAP_SYS_ADMIN"] };
  await bench.prepareRoot("w0", "waits-kept");
  await real.host.runContainer(containerOf("w0", "runsc", named, { process: capable, slot, waiting: true }));
  await bench.prepareRoot("j0", "kept");
  const connection = { slot, address, hostname: "box" };
  const joining = { id: "j0", rootfs: "j0", runtime: "runsc", process: guestProcess(), mounts: [] } as const;
  await real.host.runContainer({ ...joining, sandboxId: "w0", connect: connection });
  const before = await bench.answer();
  const saved = await real.host.saveSandbox({ id: "w0", saved: "state" });
  expect(saved.containers).toEqual([
    { id: "w0", root: true },
    { id: "j0", root: false },
  ]);
  await real.host.deleteContainer({ id: "w0" });
  for (const id of ["w0", "j0"]) await real.host.releaseRootfs({ id });
  await real.host.releaseSlot({ slot });
  await bench.prepareSlot();
  await bench.prepareRoot("w1", "waits-kept");
  await bench.prepareRoot("j1", "kept");
  const root = containerOf("w1", "runsc", named, { process: capable, slot, hostname: "box" });
  await real.host.runContainer({ ...root, restoreFrom: { saved: "state", container: "w0" } });
  expect(await real.host.waitRestored({ id: "w1", waitMs: 50 })).toBeUndefined();
  await expect(real.host.discardSaved({ id: "state" })).rejects.toMatchObject({ code: "busy" });
  const joined = { ...joining, id: "j1", rootfs: "j1", sandboxId: "w1" };
  const state = await real.host.runContainer({ ...joined, restoreFrom: { saved: "state", container: "j0" } });
  expect(state).toMatchObject({ status: "running", sandboxId: "w1" });
  expect(await real.host.waitRestored({ id: "w1", waitMs: 20_000 })).toBe("restored");
  expect(await bench.answer()).toMatchObject({ drawn: before.drawn, hostname: "box", deleted: "still here" });
  await real.host.killContainer({ id: "j1", signal: "KILL" });
  expect(await real.host.waitContainer({ id: "j1", waitMs: 20_000 })).toMatchObject({ exitCode: 137 });
});

test("saved sandbox: the guest stands still until it is continued, and its state is gone then", async () => {
  await bench.start("c0");
  await real.host.saveSandbox({ id: "c0", saved: "state" });
  expect(askGuest(real, address)).toBeUndefined();
  const process = processOf("/bin/true");
  await expect(real.host.exec({ id: "c0", process, stdin: false })).rejects.toMatchObject({ code: "busy" });
  const joining = containerOf("c2", "runsc", ["/bin/true"], { rootfs: "c0", sandboxId: "c0" });
  await expect(real.host.runContainer(joining)).rejects.toMatchObject({ code: "busy" });
  await expect(real.host.saveSandbox({ id: "c0", saved: "other" })).rejects.toMatchObject({ code: "busy" });
  const copy = guestOf("c1", { rootfs: "c0", restoreFrom: { saved: "state", container: "c0" } });
  await expect(real.host.runContainer(copy)).rejects.toMatchObject({ code: "busy" });
  await real.host.continueSandbox({ id: "c0", saved: "state" });
  await real.host.continueSandbox({ id: "c0", saved: "state" });
  expect(await real.host.listSaved()).toEqual([]);
  expect(await bench.answer()).toMatchObject({ deleted: "still here" });
  await real.host.saveSandbox({ id: "c0", saved: "state" });
  await real.host.deleteContainer({ id: "c0" });
  await expect(real.host.continueSandbox({ id: "c0", saved: "state" })).rejects.toMatchObject({ code: "not-found" });
  expect(await real.host.listSaved()).toHaveLength(1);
});

/** The guest behind the daemon, whose program is that of a name in the data directory. */
function behindDaemon(name: string): Partial<RunContainerRequest> {
  const program = { kind: "program", name } as const;
  const mounts = [{ source: program, target: "/.agent-sandbox/sandboxd", readOnly: true }] as const;
  const argv = ["/.agent-sandbox/sandboxd", "init", "--handshake", "--", ...guestProcess().argv];
  return { process: processOf(...argv), handshake: true, mounts };
}

/** What the daemon answers to a question about its health. */
function healthOf(): string {
  const url = `http://${address}:49900/v1/health`;
  return real.runInside("curl", "-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", url).stdout;
}

function keepProgram(file: string, name: string): void {
  mkdirSync(path.join(real.dataDir, "bin"), { recursive: true });
  copyFileSync(file, path.join(real.dataDir, "bin", name));
}

test("saved sandbox: the daemon of one that is restored serves when the call returns, and its processes are there", async () => {
  keepProgram(readSetup().sandboxd, "sandboxd-0123456789ab");
  const daemon = behindDaemon("sandboxd-0123456789ab");
  const before = await bench.start("d0", 0, daemon);
  await real.host.saveSandbox({ id: "d0", saved: "state" });
  await bench.removePod("d0");
  await bench.prepareSlot();
  await bench.prepareRoot("d1", "kept");
  const restoring = guestOf("d1", { ...daemon, restoreFrom: { saved: "state", container: "d0" } });
  expect(await real.host.runContainer(restoring)).toMatchObject({ status: "running", serving: true });
  expect(healthOf()).toBe("200");
  expect(await bench.answer()).toMatchObject({ drawn: before.drawn, pid: before.pid });
});

test("saved sandbox: the daemon goes on from the program that was saved, twice, although another version is current", async () => {
  keepProgram(readSetup().sandboxd, "sandboxd-0123456789ab");
  // Another program altogether: no page of it is at the same place.
  keepProgram(readSetup().sandboxProbe, "sandboxd-ba9876543210");
  const before = await bench.start("d0", 0, behindDaemon("sandboxd-0123456789ab"));
  for (const [was, is] of [
    ["d0", "d1"],
    ["d1", "d2"],
  ] as const) {
    await real.host.saveSandbox({ id: was, saved: "state" });
    await bench.removePod(was);
    await bench.prepareSlot();
    await bench.prepareRoot(is, "kept");
    const restoreFrom = { saved: "state", container: was };
    await real.host.runContainer(guestOf(is, { ...behindDaemon("sandboxd-ba9876543210"), restoreFrom }));
    expect(await real.host.waitRestored({ id: is, waitMs: 20_000 })).toBe("restored");
    expect(healthOf()).toBe("200");
    // A page of the daemon that was not in memory is read from its program.
    const inside = real.runInside("curl", "-s", "-m", "5", `http://${address}:49900/v1/no-such-thing`);
    expect(inside.status).toBe(0);
    expect(await bench.answer()).toMatchObject({ drawn: before.drawn, pid: before.pid });
    await real.host.discardSaved({ id: "state" });
  }
});

test("saved sandbox: one state that may be used again starts two sandboxes on clones, and the one that was saved goes on", async () => {
  const before = await bench.start("o0", 0);
  await bench.answer("write first,");
  await real.host.saveSandbox({ id: "o0", saved: "state", reusable: true });
  const clone = { kind: "writable" as const, from: "kept", to: "snapshot", pauseMaxMs: 10_000 };
  await real.host.cloneImage(clone);
  await real.host.continueSandbox({ id: "o0" });
  expect((await bench.answer("write original,")).disk).toBe("first,original,");
  for (const child of [3, 4]) {
    const [id, own] = [`o${child}`, `10.203.0.${child}`];
    await real.host.cloneImage({ ...clone, from: "snapshot", to: id });
    await real.host.cloneImage({ ...clone, from: "snapshot", to: id });
    await bench.prepareRoot(id, id);
    await real.host.ensureSlot({ slot: child });
    await real.host.assignSlot({ slot: child, address: own });
    const endpoints = [slot, 3, 4].map((each) => ({
      slot: each,
      address: `10.203.0.${each}`,
      ingress: [{}],
      egress: [{}],
    }));
    await real.host.applyRules({ endpoints, gatewayPorts: [], sleeping: [] });
    const restoreFrom = { saved: "state", container: "o0" };
    await real.host.runContainer(guestOf(id, { slot: child, hostname: `box-${child}`, restoreFrom }));
    expect(await real.host.waitRestored({ id, waitMs: 20_000 })).toBe("restored");
    const report = askGuest(real, own, `write ${id},`);
    expect(report).toMatchObject({ drawn: before.drawn, deleted: "still here", disk: `first,${id},` });
    expect(report?.hostname).toBe(`box-${child}`);
  }
  expect((await bench.answer()).disk).toBe("first,original,");
  expect((await real.host.listSaved())[0]?.unusable).toBeUndefined();
});
