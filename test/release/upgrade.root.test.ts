import {
  appendFileSync,
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { pods } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runtimeVersionCondition } from "../../packages/api/src/labels.ts";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { type Changes, ReleaseBed } from "./release-bed.ts";

const [first, second, broken, brokenOlder] = ["0.1.1-test", "0.1.2-test", "0.1.3-test", "0.1.0-test"];

let bed: ReleaseBed;
let files: { readonly first: string; readonly second: string };
beforeAll(async () => {
  bed = await ReleaseBed.open();
  const [a, b] = [await bed.build(first), await bed.build(second, { otherRunsc: true })];
  files = { first: a.file, second: b.file };
  bed.install(a.dir, first);
  bed.must("up", "--detach");
});
afterAll(async () => {
  await bed[Symbol.asyncDispose]();
});

const upgradeTo = (file: string, ...flags: readonly string[]): string => bed.must("upgrade", "--from", file, ...flags);

/** A sandbox with a process that counts, a file in its layer and one on a volume. */
function startCounting(name: string): void {
  const script =
    "echo $$ > /root/pid; echo kept > /root/file; echo kept > /data/file; i=0; while :; do i=$((i+1)); echo $i > /root/count; sleep 0.1; done";
  bed.must("run", "--name", name, "--volume", "/data:64Mi", "--detach", "--", "sh", "-c", script);
}

/** By runsc: the process that was started counts on, and what was written is there. */
async function expectCounting(name: string, pid: string): Promise<void> {
  const [before, after] = (await bed.sh(name, `cat /root/count; kill -0 ${pid}; sleep 0.5; cat /root/count`)).split(
    "\n",
  );
  expect(Number(after)).toBeGreaterThan(Number(before));
  expect(await bed.sh(name, "cat /root/pid /root/file /data/file")).toBe(`${pid}\nkept\nkept`);
}

async function runtimeOf(name: string): Promise<string> {
  const client = await bed.client();
  const { status } = await client.get(pods, { namespace: "default", name });
  await client.transport.close();
  return status?.conditions?.find(({ type }) => type === runtimeVersionCondition)?.message ?? "";
}

const isUnpacking = (): boolean => {
  const versions = path.join(bed.prefix, "versions");
  return readdirSync(versions).some(
    (name) => name.startsWith(".new-") && existsSync(path.join(versions, name, "lib/node")),
  );
};

const isSwitching = (): boolean =>
  bed.place.run(["test", "-e", path.join(layoutOf(bed.dataDir).runDir, "switch.json")]).status === 0;

test("upgrade: a running engine is replaced and comes back; sandboxes keep their process, their files and their runsc", async () => {
  startCounting("old");
  const pid = await bed.sh("old", "cat /root/pid");
  const [runtime, engine] = [await runtimeOf("old"), bed.record()];
  expect(runtime).toContain(bed.runtimes()[0]);

  // Killed while it unpacks, an upgrade has changed nothing; the next one completes it.
  expect(await bed.runAndKill(isUnpacking, "upgrade", "--from", files.second)).toBe(true);
  expect(bed.record()).toEqual(engine);
  expect(upgradeTo(files.second)).toContain(`${first} was replaced by ${second}`);
  expect(bed.record()).toMatchObject({ version: second, apiUrl: engine.apiUrl, supervisor: engine.supervisor });
  await expectCounting("old", pid);
  startCounting("young");
  const youngPid = await bed.sh("young", "cat /root/pid");
  expect(await runtimeOf("old")).toBe(runtime);
  expect(await runtimeOf("young")).not.toBe(runtime);
  expect(bed.must("describe", "pod", "old")).toContain(runtime);
  expect(bed.runtimes()).toHaveLength(2);
  expect(upgradeTo(files.second)).toContain("nothing to do");

  // Killed after it has asked, it is not needed any more: the engine goes on alone.
  expect(await bed.runAndKill(isSwitching, "upgrade", "--from", files.first)).toBe(true);
  await expect.poll(() => bed.run("status").stdout, { timeout: 30_000 }).toContain(`version ${first}`);
  expect(upgradeTo(files.first)).toContain("nothing to do");
  await expectCounting("old", pid);
  await expectCounting("young", youngPid);
  bed.must("delete", "sandbox", "young");
  await expect.poll(() => bed.runtimes(), { timeout: 20_000 }).toHaveLength(1);
  expect(runtime).toContain(bed.runtimes()[0]);
});

/** A file that has what is looked at first, and nothing that runs but the launcher. */
function hollowRelease(version: string, arch: string, record: object = {}, launcher?: string): Promise<string> {
  const name = `agent-sandbox-${version}-linux-${arch}`;
  const dir = path.join(bed.work, "dist", name);
  for (const file of ["bin/agent-sandbox", "lib/node", "lib/app/main.js"]) {
    mkdirSync(path.dirname(path.join(dir, file)), { recursive: true });
    writeFileSync(path.join(dir, file), "");
  }
  if (launcher !== undefined) writeFileSync(path.join(dir, "bin/agent-sandbox"), launcher);
  chmodSync(path.join(dir, "bin/agent-sandbox"), launcher === undefined ? 0o644 : 0o755);
  writeFileSync(
    path.join(dir, "release.json"),
    JSON.stringify({ version, arch, storeFormat: 1, programs: {}, ...record }),
  );
  return bed.pack(name);
}

function changed(name: string, change: (file: string) => void): string {
  const dir = path.join(bed.work, name);
  mkdirSync(dir, { recursive: true });
  const file = path.join(dir, path.basename(files.second));
  copyFileSync(files.second, file);
  change(file);
  return file;
}

const refusals: readonly (readonly [string, number, RegExp, () => string | Promise<string>])[] = [
  ["that is not there", 3, /there is no file/, () => "/nowhere/release.tar.gz"],
  ["that is cut off", 1, /ends too early/, () => changed("cut", (file) => truncateSync(file, 30_000_000))],
  ["that is empty", 1, /ends too early/, () => changed("empty", (file) => truncateSync(file, 0))],
  [
    "that is garbage",
    1,
    /is damaged, or not a release/,
    () => changed("garbage", (file) => writeFileSync(file, "not a release")),
  ],
  [
    "of another digest",
    1,
    /has not the digest that .*SHA256SUMS names/,
    () =>
      changed("list", (file) => {
        appendFileSync(path.join(path.dirname(file), "SHA256SUMS"), `${"0".repeat(64)}  ${path.basename(file)}\n`);
      }),
  ],
  ["for another machine", 8, /is for arm64, and this machine is x64/, () => hollowRelease("0.1.2-test", "arm64")],
  ["two versions back", 6, /more than one version back/, () => hollowRelease("0.0.9", "x64")],
  [
    "with a damaged program",
    1,
    /has not the digest that its release.json names/,
    () => hollowRelease("0.1.9", "x64", { programs: { runsc: "0".repeat(64) } }),
  ],
  [
    "that cannot read the data",
    6,
    /the data is of format 1, .* and 0.1.0 reads 0; no copy from before is there/,
    () => hollowRelease("0.1.0", "x64", { storeFormat: 0 }),
  ],
  ["that does not run here", 8, /does not run on this machine/, () => hollowRelease("0.1.8", "x64")],
];

test.for(refusals)(
  "upgrade: a file %s is refused with exit code %i and one sentence, and the engine is untouched",
  async ([, exitCode, sentence, make]) => {
    const before = bed.record();
    const { status, stderr, stdout } = bed.run("upgrade", "--from", await make());
    expect({ status, stdout, lines: stderr.trim().split("\n").length }).toEqual({
      status: exitCode,
      stdout: "",
      lines: 1,
    });
    expect(stderr).toMatch(sentence);
    expect(bed.record()).toEqual(before);
    expect(bed.run("status").stdout).toContain(`version ${before.version}`);
  },
);

test("upgrade: --check says what would be done and does nothing", () => {
  const before = bed.record();
  expect(upgradeTo(files.second, "--check")).toContain(`${first} can be replaced by ${second}`);
  expect(bed.record()).toEqual(before);
});

test("upgrade: the way back from data that the older version cannot read is offered, and loses nothing", async () => {
  const pid = await bed.sh("old", "cat /root/pid");
  upgradeTo(files.second);
  bed.must("run", "--name", "after", "--", "true");
  // As a version leaves it that writes a later format of the store.
  const { versionFile, dbFile } = layoutOf(bed.dataDir);
  writeFileSync(versionFile, JSON.stringify({ version: second, storeFormat: 2, before: first }));
  const { status, stderr } = bed.run("upgrade", "--from", files.first);
  expect(stderr).toMatch(/is of format 2, written by 0.1.2-test, and 0.1.1-test reads 1; a copy of .* --restore-data/);
  expect(status).toBe(6);
  expect(bed.record().version).toBe(second);

  expect(upgradeTo(files.first, "--restore-data")).toContain(`${second} was replaced by ${first}`);
  await expectCounting("old", pid);
  expect(bed.must("get", "sandboxes")).not.toContain("after");
  expect(readdirSync(path.dirname(dbFile)).some((name) => name.startsWith(`store-of-${second}-at-`))).toBe(true);
});

/** A node that ends at once. The largest programs are those of another release: unpacking them again would be most of the time. */
function withoutNode(): Changes {
  const programs = ["lib/node", "libexec/runsc"].map((name) => {
    const file = path.join(bed.prefix, "versions", first, name);
    return [name, `#!/bin/sh\nexec ${file} "$@"\n`];
  });
  return { files: { ...Object.fromEntries(programs), "lib/app/node-role.js": "process.exit(3);\n" } };
}

test("upgrade: a release that does not start gives way to the one before, with its sandboxes and its link", async () => {
  const pid = await bed.sh("old", "cat /root/pid");
  const { file } = await bed.build(broken, withoutNode());
  const { status, stderr } = bed.run("upgrade", "--from", file);
  expect(stderr).toMatch(
    new RegExp(`${broken} did not start \\(node ended before it was ready.*; ${first} runs again`),
  );
  expect(status).toBe(1);
  expect(bed.record().version).toBe(first);
  expect(bed.place.must("readlink", path.join(bed.prefix, "current"))).toContain(`versions/${first}`);
  await expectCounting("old", pid);
});

/** Ways to end before any `up` of the version has begun: nothing of the version itself can turn back. */
const ends: readonly (readonly [string, string, string])[] = [
  ["refuses a flag", "0.1.4-test", "echo 'error: unknown option --listen' >&2; exit 2"],
  ["is killed at once", "0.1.5-test", "kill -9 $$"],
];

test.for(ends)(
  "upgrade: a release that %s gives way to the one before, with its sandboxes, ports and link",
  async ([, version, end]) => {
    const [pid, before] = [await bed.sh("old", "cat /root/pid"), bed.record()];
    const launcher = `#!/bin/sh\nif [ "$1" = --version ]; then echo ${version}; exit; fi\n${end}\n`;
    const { status, stderr } = bed.run("upgrade", "--from", await hollowRelease(version, "x64", {}, launcher));
    expect(stderr).toContain(`${version} did not start (it ended before it answered); ${first} runs again`);
    expect(status).toBe(1);
    expect(bed.record()).toMatchObject({ version: first, apiUrl: before.apiUrl, routerUrl: before.routerUrl });
    expect(bed.place.must("readlink", path.join(bed.prefix, "current"))).toContain(`versions/${first}`);
    expect(isSwitching()).toBe(false);
    await expectCounting("old", pid);
  },
);

test("upgrade: a switch that ends well leaves no process that watched over it", () => {
  const watching = bed.place.run(["pgrep", "-fc", `switch-guard-process.*"${bed.dataDir}"`]).stdout.trim();
  expect(watching).toBe("0");
});

test("upgrade: an older version that does not start on the restored copy gives way to the one before, with its own store", async () => {
  bed.must("run", "--name", "since", "--", "true");
  const { versionFile, dbFile } = layoutOf(bed.dataDir);
  const dir = path.dirname(dbFile);
  const some = readdirSync(dir).find((name) => name.startsWith("store-of-")) ?? "";
  const copy = path.join(dir, `store-of-${brokenOlder}-at-1.sqlite`);
  copyFileSync(path.join(dir, some), copy);
  const { uid, gid } = statSync(dbFile);
  chownSync(copy, uid, gid);
  writeFileSync(versionFile, JSON.stringify({ version: first, storeFormat: 2, before: brokenOlder }));
  const { file } = await bed.build(brokenOlder, withoutNode());
  const { status, stderr } = bed.run("upgrade", "--from", file, "--restore-data");
  expect(stderr).toMatch(new RegExp(`${brokenOlder} did not start .*; ${first} runs again`));
  expect(status).toBe(1);
  expect(bed.must("get", "sandboxes")).toContain("since");
});

test("upgrade: a copy is not restored where no engine runs, and the link stays", () => {
  const link = (): string => bed.place.must("readlink", path.join(bed.prefix, "current"));
  const before = link();
  bed.must("down");
  const { versionFile } = layoutOf(bed.dataDir);
  writeFileSync(versionFile, JSON.stringify({ version: first, storeFormat: 2, before: brokenOlder }));
  const older = path.join(bed.work, "dist", `agent-sandbox-${brokenOlder}-linux-${process.arch}.tar.gz`);
  const { status, stderr } = bed.run("upgrade", "--from", older, "--restore-data");
  expect(stderr).toContain(`a copy of the store is restored by a running engine; start ${first} with up first`);
  expect([status, link()]).toEqual([6, before]);
});
