import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { stateOf, sweepAll } from "./contract-case.ts";
import { gzipLayer, tarEntry, tarOf } from "./layer-blob.ts";
import { RealHost } from "./real-host.ts";
import { address, guestOf, SavedBench } from "./saved-bench.ts";
import { askGuest } from "./saved-guest.ts";

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

const statePath = (...parts: string[]) => path.join(real.hostDir, "snapshots", ...parts);
const pauseRecord = (id: string) => path.join(real.hostDir, "containers", id, "paused.json");

/** A saved sandbox whose Pod has gone, and all that the next one needs but the container. */
async function saveAndRemove(): Promise<void> {
  await bench.start("f0");
  await real.host.saveSandbox({ id: "f0", saved: "state" });
  await bench.removePod("f0");
  await bench.prepareSlot();
  await bench.prepareRoot("f1", "kept");
}

const restoring = () => guestOf("f1", { restoreFrom: { saved: "state", container: "f0" } });

function changeManifest(change: (manifest: Record<string, unknown>) => void): void {
  const file = statePath("state", "manifest.json");
  const manifest = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
  change(manifest);
  writeFileSync(file, JSON.stringify(manifest));
}

test.for([
  ["cut", (file: string) => truncateSync(file, statSync(file).size - 4096)],
  [
    "damaged",
    (file: string) => {
      const bytes = readFileSync(file);
      bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1;
      writeFileSync(file, bytes);
    },
  ],
] as const)("saved sandbox: a page file that is %s fails the restore and keeps the state", async ([, damage]) => {
  await saveAndRemove();
  const whole = readFileSync(statePath("state", "pages.img"));
  damage(statePath("state", "pages.img"));
  await expect(real.host.runContainer(restoring())).rejects.toMatchObject({ code: "restore-failed" });
  expect(await stateOf(real.host, "f1")).toBeUndefined();
  expect(real.processesOf("f1")).toEqual([]);
  expect(await real.host.listSaved()).toHaveLength(1);
  writeFileSync(statePath("state", "pages.img"), whole);
  await real.host.runContainer(restoring());
  expect(await bench.answer()).toMatchObject({ deleted: "still here" });
});

test("saved sandbox: a state that runsc cannot load fails the restore, leaves no container and keeps the state", async () => {
  await saveAndRemove();
  const other = { ...restoring(), process: { ...restoring().process, cwd: "/tmp" } };
  await expect(real.host.runContainer(other)).rejects.toMatchObject({ code: "restore-failed" });
  expect(await stateOf(real.host, "f1")).toBeUndefined();
  await expect.poll(() => real.processesOf("f1"), { timeout: 5000 }).toEqual([]);
  await real.host.runContainer(restoring());
  expect(await bench.answer()).toMatchObject({ deleted: "still here" });
});

test("saved sandbox: another processor, another build of runsc and another image are refused with the reason", async () => {
  await saveAndRemove();
  const { runtimeVersion } = (await real.host.listSaved())[0] ?? expect.unreachable("it was saved");
  changeManifest((manifest) => (manifest["cpuFlags"] as string[]).push("warp"));
  await expect(real.host.runContainer(restoring())).rejects.toMatchObject({
    code: "restore-refused",
    message: expect.stringContaining("lacks warp"),
  });
  changeManifest((manifest) => (manifest["cpuFlags"] as string[]).pop());
  changeManifest((manifest) => (manifest["runtimeVersion"] = "v1+0123456789ab"));
  await expect(real.host.runContainer(restoring())).rejects.toMatchObject({
    code: expect.stringMatching(/restore-refused|runtime-missing/),
  });
  expect((await real.host.listSaved())[0]?.unusable).toContain("v1+0123456789ab");
  changeManifest((manifest) => (manifest["runtimeVersion"] = runtimeVersion));
  const layer = gzipLayer(tarOf(tarEntry({ name: "etc/motd", content: "hello" })));
  await real.putBlob("images/layer", layer.blob);
  await real.host.unpackLayer({ blobPath: "images/layer", digest: layer.digest, diffId: layer.diffId });
  await real.host.prepareRootfs({ id: "changed", layers: [layer.diffId], writableBytes: 2 ** 26 });
  await expect(real.host.runContainer({ ...restoring(), rootfs: "changed" })).rejects.toMatchObject({
    code: "restore-refused",
    message: expect.stringContaining("another image"),
  });
  expect((await real.host.listSaved())[0]?.unusable).toBeUndefined();
});

test("saved sandbox: a disk without room is no-space, nothing is left and the guest goes on", async () => {
  const before = await bench.start("f0", 64);
  real.runInside("mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", statePath());
  try {
    await expect(real.host.saveSandbox({ id: "f0", saved: "state" })).rejects.toMatchObject({ code: "no-space" });
    expect(readdirSync(path.join(real.root, statePath()))).toEqual([]);
    expect(await bench.answer()).toMatchObject({ drawn: before.drawn });
    expect(existsSync(pauseRecord("f0"))).toBe(false);
    // Its files are gone for the sentry too, which keeps one of them open.
    expect(Number(real.runInside("df", "--output=used", statePath()).stdout.split("\n")[1])).toBeLessThan(64);
  } finally {
    real.runInside("umount", "-l", statePath());
  }
  await real.host.saveSandbox({ id: "f0", saved: "state" });
});

/** Resolves once the sentry has begun to write pages. */
async function pagesBegun(): Promise<void> {
  const file = statePath("state.partial", "pages.img");
  for (let tries = 0; !existsSync(file) || statSync(file).size === 0; tries += 1) {
    if (tries > 5000) expect.unreachable("no page was written");
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

test("saved sandbox: a sentry that is killed while it is saved is save-failed, and nothing is left", async () => {
  await bench.start("f0", 512);
  const { pid } = (await stateOf(real.host, "f0")) ?? expect.unreachable("it runs");
  const saving = real.host.saveSandbox({ id: "f0", saved: "state" });
  const settled = expect(saving).rejects.toMatchObject({ code: "save-failed" });
  await pagesBegun();
  process.kill(pid, "SIGKILL");
  await settled;
  expect(await real.host.listSaved()).toEqual([]);
  expect(readdirSync(statePath())).toEqual([]);
  await expect.poll(() => stateOf(real.host, "f0"), { timeout: 10_000 }).toMatchObject({ status: "stopped" });
});

test("host restart: a save that was cut off leaves nothing, and its guest goes on", async () => {
  const before = await bench.start("f0", 512);
  const saving = real.host.saveSandbox({ id: "f0", saved: "state" });
  const settled = expect(saving).rejects.toMatchObject({ code: "unavailable" });
  await pagesBegun();
  await real.kill();
  await settled;
  await real.start();
  expect(await real.host.listSaved()).toEqual([]);
  expect(readdirSync(statePath())).toEqual([]);
  expect(await bench.answer()).toMatchObject({ drawn: before.drawn });
  expect(existsSync(pauseRecord("f0"))).toBe(false);
  await real.host.saveSandbox({ id: "f0", saved: "state" });
});

test("host restart: a saved sandbox stands still with its state, and goes on when it is continued", async () => {
  const before = await bench.start("f0");
  const saved = await real.host.saveSandbox({ id: "f0", saved: "state" });
  await real.kill();
  await real.start();
  expect(await real.host.listSaved()).toEqual([saved]);
  expect(askGuest(real, address)).toBeUndefined();
  expect(await real.host.saveSandbox({ id: "f0", saved: "state" })).toEqual(saved);
  await real.host.continueSandbox({ id: "f0", saved: "state" });
  expect(await bench.answer()).toMatchObject({ drawn: before.drawn });
});

test.for([
  ["pausing", false],
  ["pausing", true],
  ["continuing", false],
  ["continuing", true],
] as const)("host restart: killed in step %s, guest stopped: %s, the guest goes on", async ([step, isStopped]) => {
  const before = await bench.start("f0");
  if (isStopped) await real.host.saveSandbox({ id: "f0", saved: "state" });
  await real.kill();
  // The sentry is called between two records; which side of the call a kill was on, no record tells.
  if (isStopped) real.runInside("rm", "-r", statePath("state"));
  writeFileSync(pauseRecord("f0"), JSON.stringify({ step, saved: "state" }));
  await real.start();
  expect(await bench.answer()).toMatchObject({ drawn: before.drawn });
  expect(existsSync(pauseRecord("f0"))).toBe(false);
});

test("host restart: a restore that a helper before began is known", async () => {
  await saveAndRemove();
  await real.host.runContainer(restoring());
  await real.kill();
  await real.start();
  expect(await real.host.waitRestored({ id: "f1", waitMs: 20_000 })).toBe("restored");
  expect(await bench.answer()).toMatchObject({ deleted: "still here" });
  await real.host.discardSaved({ id: "state" });
});

test("saved sandbox: the peer of a connection from before is reset", async () => {
  await bench.start("f0");
  const script = `exec 3<>/dev/tcp/${address}/8080; printf tell >&3; head -n 1 <&3 >/dev/null; echo open; read line; printf tell >&3; head -n 1 <&3 >/dev/null || echo reset`;
  const [program, args] = real.inside(
    "timeout",
    "60",
    "bash",
    "-c",
    `${script}; cat <&3 2>&1 | head -c 200; echo done`,
  );
  const peer = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"] });
  let said = "";
  for (const stream of [peer.stdout, peer.stderr]) stream.on("data", (bytes: Buffer) => (said += bytes.toString()));
  await expect.poll(() => said, { timeout: 10_000 }).toContain("open");
  await real.host.saveSandbox({ id: "f0", saved: "state" });
  await bench.removePod("f0");
  await bench.prepareSlot();
  await bench.prepareRoot("f1", "kept");
  await real.host.runContainer(restoring());
  await bench.answer();
  peer.stdin.write("\n");
  await expect.poll(() => said, { timeout: 10_000 }).toContain("reset by peer");
  peer.kill("SIGKILL");
});
