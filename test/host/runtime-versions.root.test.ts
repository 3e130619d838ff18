import {
  appendFileSync,
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { readSetup } from "../../scripts/checkout.ts";
import { containerOf, processOf, runOnHostUsr, stateOf } from "./contract-case.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
let other: string;
beforeAll(async () => {
  real = await RealHost.open();
  // What stands behind the end of an ELF file is not loaded: the same program with another digest, as another release's runsc has.
  other = path.join(real.work, "runsc-other");
  copyFileSync(readSetup().runsc, other);
  appendFileSync(other, "another build\n");
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});
beforeEach(() => restartWith(undefined));

async function restartWith(runsc: string | undefined): Promise<void> {
  await real.kill();
  real.runsc = runsc;
  await real.start();
}

const sleeps = ["/bin/sleep", "600"];
const runtimesDir = (): string => path.join(real.hostDir, "runtimes");
const recordOf = (id: string): string => path.join(real.hostDir, "containers", id, "record.json");
const versionOf = async (id: string): Promise<string | undefined> => (await stateOf(real.host, id))?.runtimeVersion;

async function currentVersion(): Promise<string> {
  const current = (await real.host.info()).runtimeVersions.find(({ current }) => current);
  if (current === undefined) throw new Error("no runsc is installed");
  return current.version;
}

/** Runs `sleep` inside and says which program the helper started for it. */
async function programOfExec(id: string): Promise<string> {
  await using stream = await real.host.exec({ id, process: processOf("/bin/sleep", "60"), stdin: false });
  void stream.exit.catch(() => undefined);
  const calls = readdirSync("/proc").filter((pid) => {
    try {
      const args = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      return args.includes("exec") && args.includes(`${id}_`);
    } catch {
      return false;
    }
  });
  expect(calls).toHaveLength(1);
  return readlinkSync(`/proc/${calls[0]}/exe`);
}

test("runtime versions: a sandbox is driven by the build that started it until the last one that needs it is gone", async () => {
  await runOnHostUsr(real.host, containerOf("old-root", "runsc", sleeps));
  const old = await currentVersion();
  const pid = (await stateOf(real.host, "old-root"))?.pid;
  await restartWith(other);
  const young = await currentVersion();
  expect(young).not.toBe(old);
  await runOnHostUsr(real.host, containerOf("old-joined", "runsc", sleeps, { sandboxId: "old-root" }));
  await runOnHostUsr(real.host, containerOf("young-root", "runsc", sleeps));
  expect(await Promise.all(["old-root", "old-joined", "young-root"].map(versionOf))).toEqual([old, old, young]);
  expect((await stateOf(real.host, "old-root"))?.pid).toBe(pid);
  expect(await programOfExec("old-root")).toContain(path.join(runtimesDir(), old, "runsc"));
  expect(await programOfExec("old-joined")).toContain(path.join(runtimesDir(), old, "runsc"));
  expect(await programOfExec("young-root")).toContain(path.join(runtimesDir(), young, "runsc"));
  expect((await real.host.info()).runtimeVersions.map(({ sandboxes }) => sandboxes)).toEqual([1, 1]);
  await real.host.deleteContainer({ id: "old-joined" });
  expect(existsSync(path.join(runtimesDir(), old))).toBe(true);
  await real.host.deleteContainer({ id: "old-root" });
  expect(readdirSync(runtimesDir())).toEqual([young]);
  await real.host.deleteContainer({ id: "young-root" });
  expect(readdirSync(runtimesDir())).toEqual([young]);
});

test("runtime versions: a missing build is said of its sandbox alone, which can still be deleted", async () => {
  await restartWith(other);
  await runOnHostUsr(real.host, containerOf("orphaned", "runsc", sleeps));
  await runOnHostUsr(real.host, containerOf("orphaned-joined", "runsc", sleeps, { sandboxId: "orphaned" }));
  const version = await currentVersion();
  await restartWith(undefined);
  await runOnHostUsr(real.host, containerOf("healthy", "runsc", sleeps));
  rmSync(path.join(runtimesDir(), version), { recursive: true });
  const message = expect.stringContaining(`was started by runsc ${version}, which is missing`) as string;
  expect(await stateOf(real.host, "orphaned")).toMatchObject({ status: "running", runtimeMissing: message });
  expect(await stateOf(real.host, "healthy")).not.toHaveProperty("runtimeMissing");
  const exec = real.host.exec({ id: "orphaned", process: processOf("/bin/true"), stdin: false });
  await expect(exec).rejects.toMatchObject({ code: "runtime-missing", message });
  const joins = runOnHostUsr(real.host, containerOf("late", "runsc", sleeps, { sandboxId: "orphaned" }));
  await expect(joins).rejects.toMatchObject({ code: "runtime-missing", message });
  await real.host.deleteContainer({ id: "orphaned-joined" });
  expect(await stateOf(real.host, "orphaned")).toMatchObject({ status: "running" });
  await real.host.deleteContainer({ id: "orphaned" });
  expect(real.processesOf("orphaned")).toEqual([]);
  expect(await programOfExec("healthy")).toContain(runtimesDir());
  await real.host.deleteContainer({ id: "healthy" });
});

test.for(["same", "other"])(
  "runtime versions: a record that names none, and the %s runsc: driven by its own or by none",
  async (next) => {
    const id = `unnamed-${next}`;
    await runOnHostUsr(real.host, containerOf(id, "runsc", sleeps));
    const { runtimeVersion, ...rest } = JSON.parse(readFileSync(recordOf(id), "utf8")) as Record<string, unknown>;
    await real.kill();
    writeFileSync(recordOf(id), JSON.stringify(rest));
    real.runsc = next === "same" ? undefined : other;
    await real.start();
    const exec = real.host.exec({ id, process: processOf("/bin/true"), stdin: false });
    if (next === "same") {
      await using stream = await exec;
      expect(await stream.exit).toBe(0);
      expect(await versionOf(id)).toBe(runtimeVersion);
    } else {
      await expect(exec).rejects.toMatchObject({ code: "runtime-missing" });
    }
    await real.host.deleteContainer({ id });
  },
);

test("runtime versions: what a helper left half installed is removed, and a build that is there is not copied again", async () => {
  const version = await currentVersion();
  const file = path.join(runtimesDir(), version, "runsc");
  const before = statSync(file);
  await real.kill();
  writeFileSync(path.join(real.work, "keep"), "");
  const half = path.join(runtimesDir(), ".new-0000000000000000");
  copyFileSync(path.join(real.work, "keep"), half);
  await real.start();
  expect(existsSync(half)).toBe(false);
  expect(statSync(file)).toMatchObject({ ino: before.ino, mtimeMs: before.mtimeMs });
});
