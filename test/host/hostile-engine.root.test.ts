import {
  chmodSync,
  chownSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { HostClient } from "../../packages/server/src/node/host/host-client.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { Canaries } from "./canaries.ts";
import { containerOf, processOf } from "./contract-case.ts";
import { type Attempt, attemptsByVerb, type Prey } from "./hostile-attempts.ts";
import { HostileProcess, type Outcome } from "./hostile-process.ts";
import { gzipLayer, tarEntry, tarOf } from "./layer-blob.ts";
import { RealHost } from "./real-host.ts";

/** Users that own nothing on any machine: the node's, and those of other roles. */
const nodeUid = 54_321;
const otherUids = [54_322, 54_323, 65_534];

const isFull = process.env["AGENT_SANDBOX_TEST_FULL"] === "1";
/** Verbs that run while what they name is swapped; `AGENT_SANDBOX_TEST_FULL=1` tries many more. */
const unpackRounds = isFull ? 3000 : 150;
const startRounds = isFull ? 100 : 6;
/** Alone on two processors the full number takes 55 s. */
const raceTimeoutMs = isFull ? 600_000 : 120_000;

let real: RealHost;
let canaries: Canaries;
let node: HostileProcess;
let prey: Prey;

const inNodeDir = (...parts: readonly string[]): string => path.join(real.nodeDir, ...parts);

beforeAll(async () => {
  real = await RealHost.open({ nodeUid });
  canaries = new Canaries(path.join(real.work, "canaries"));
  node = await HostileProcess.start({ uid: nodeUid, gid: nodeUid });
  await real.host.prepareRootfs({ id: "prey", hostUsr: true, writableBytes: 2 ** 26 });
  await real.host.ensureVolume({ id: "prey", sizeBytes: 2 ** 23 });
  await real.host.ensureEmptyDir({ id: "prey", sizeBytes: 2 ** 23 });
  await real.host.writeFiles({ id: "prey", files: [{ path: "key", contentBase64: "", mode: 0o444 }] });
  await real.host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
  await real.host.ensureSlot({ slot: 1 });
  prey = { secret: canaries.secret, secretDigest: canaries.secretDigest, planted: await plant() };
});

afterAll(async () => {
  await node[Symbol.asyncDispose]();
  await real[Symbol.asyncDispose]();
});

/** Puts into the node's directory all that its user can put there, and returns the names that lead somewhere. */
async function plant(): Promise<string[]> {
  const links: Readonly<Record<string, string>> = {
    "images/soft": canaries.secret,
    "images/softdir": canaries.dir,
    "images/up": "../../..",
    "images/self": "/proc/self",
    "images/loop": "loop",
    "images/host": path.join(real.dataDir, "host"),
  };
  for (const [name, target] of Object.entries(links))
    expect(await node.file("symlinkSync", target, inNodeDir(name))).toMatchObject({ code: "ok" });
  expect(await node.fifo(inNodeDir("images/fifo"))).toMatchObject({ code: "ok" });
  expect(await node.file("mkdirSync", inNodeDir("images/dir"))).toMatchObject({ code: "ok" });
  // Where the kernel lets anybody link to what is not theirs; on most machines the user could not do this by itself.
  linkSync(canaries.secret, inNodeDir("images/hard"));
  const below = [
    "images/softdir/secret",
    "images/softdir/new",
    "images/up/host/rootfs/forged.json",
    "images/self/root/etc/hostname",
    "images/host/rootfs/prey.json",
    "images/hard/x",
  ];
  return [...Object.keys(links), "images/fifo", "images/dir", "images/hard", ...below];
}

function expectUnharmed(): void {
  expect(canaries.changes()).toBe("");
}

/** Answers that are no refusal: the helper did it, did not know what it did, or looked into what it was led to. */
const unrefusedCodes = ["ok", "internal", "entry-refused", "digest-mismatch"];

/** Runs attempts one after the other; what was not refused is in the answer. */
async function unrefused(verb: string, attempts: readonly Attempt[]): Promise<string[]> {
  const accepted: string[] = [];
  for (const { what, body } of attempts) {
    const { code, message } = await node.call(real.socketPath, verb, body);
    if (unrefusedCodes.includes(code) || canaries.isToldBy(message)) accepted.push(`${what}: ${code} ${message}`);
  }
  return accepted;
}

test("hostile engine: there are attempts for every verb of the helper, and no verb besides", () => {
  const source = readFileSync(path.join(rootDir, "native/internal/hostapi/verbs.go"), "utf8");
  const verbs = [...source.matchAll(/define\(s, "(\w+)"/g)].map(([, name]) => name ?? "");
  expect(verbs.length).toBeGreaterThan(30);
  const known = Object.keys(new HostClient({ socketPath: "" }));
  expect([...known].toSorted()).toEqual([...verbs].toSorted());
  expect(Object.keys(attemptsByVerb(prey)).toSorted()).toEqual([...verbs, "exec", "exportImage"].toSorted());
});

test("invariant helper-validates-everything: the node's user makes root read, write, give away or run nothing by any verb", async () => {
  const rows: { verb: string; attempts: number; refused: number }[] = [];
  const accepted: string[] = [];
  for (const [verb, attempts] of Object.entries(attemptsByVerb(prey))) {
    const found = await unrefused(verb, attempts);
    rows.push({ verb, attempts: attempts.length, refused: attempts.length - found.length });
    accepted.push(...found.map((line) => `${verb}: ${line}`));
    expect([verb, canaries.changes()]).toEqual([verb, ""]);
  }
  console.table(rows);
  expect(accepted).toEqual([]);
  expect(readdirSync(path.join(real.dataDir, "host/rootfs"))).toEqual(["prey.json"]);
  expect((await real.host.info()).badRecords).toEqual([]);
});

test("hostile engine: no other user speaks to the helper, whatever groups it has", async () => {
  const verbs = Object.keys(attemptsByVerb(prey));
  for (const uid of otherUids) {
    await using stranger = await HostileProcess.start({ uid, gid: uid });
    expect(await stranger.call(real.socketPath, "info", {})).toMatchObject({ code: "EACCES" });
    await using inGroup = await HostileProcess.start({ uid, gid: nodeUid });
    for (const verb of verbs)
      expect([verb, (await inGroup.call(real.socketPath, verb, {})).code]).toEqual([verb, "permission-denied"]);
  }
  expect(await node.call(real.socketPath, "info", {})).toMatchObject({ code: "ok" });
});

test("hostile engine: what root reads and writes cannot be touched by the node's user", async () => {
  const { instance } = await real.host.info();
  const run = path.join(real.work, "run", instance);
  const refused: Outcome[] = [];
  for (const dir of [
    real.dataDir,
    path.join(real.dataDir, "host"),
    path.join(real.dataDir, "engine"),
    run,
    path.join(run, "runsc"),
    path.join(run, "netns"),
  ]) {
    // Of the directory of roles everybody may know the names.
    if (!dir.endsWith("/engine")) refused.push(await node.file("readdirSync", dir));
    refused.push(
      await node.file("writeFileSync", path.join(dir, "planted"), ""),
      await node.file("symlinkSync", canaries.dir, path.join(dir, "planted")),
      await node.file("mkdirSync", path.join(dir, "planted")),
      await node.file("renameSync", dir, `${dir}.away`),
      await node.file("rmdirSync", dir),
    );
  }
  for (const file of [
    path.join(real.dataDir, "host/rootfs/prey.json"),
    path.join(real.dataDir, "host/volumes/prey.img"),
  ])
    refused.push(await node.file("readFileSync", file), await node.file("linkSync", file, inNodeDir("images/stolen")));
  refused.push(
    await node.file("renameSync", real.nodeDir, `${real.nodeDir}.away`),
    await node.file("unlinkSync", real.socketPath),
  );
  expect(
    refused
      .filter(({ code }) => !["EACCES", "EPERM", "EBUSY", "ENOTEMPTY"].includes(code))
      .map(({ message }) => message),
  ).toEqual([]);
});

test("hostile engine: a layer's entries lead nowhere but into the layer", async () => {
  const hostile: Readonly<Record<string, readonly Parameters<typeof tarEntry>[0][]>> = {
    "a link, and a file through it": [
      { name: "out", type: "2", linkName: canaries.dir },
      { name: "out/secret", content: "overwritten" },
    ],
    "a hard link to a file of root's": [{ name: "secret", type: "1", linkName: canaries.secret }],
    "a hard link through a link": [
      { name: "out", type: "2", linkName: canaries.dir },
      { name: "secret", type: "1", linkName: "out/secret" },
    ],
    "a name that leads up": [{ name: "../../../secret", content: "overwritten" }],
    "a whiteout of what is above": [{ name: "a/.wh...", content: "" }],
    "a device": [{ name: "disk", type: "4" }],
  };
  for (const [what, entries] of Object.entries(hostile)) {
    const { blob, digest, diffId } = gzipLayer(tarOf(...entries.map(tarEntry)));
    writeFileSync(inNodeDir("images/hostile"), blob);
    chownSync(inNodeDir("images/hostile"), nodeUid, nodeUid);
    await node.call(real.socketPath, "unpackLayer", { blobPath: "images/hostile", digest, diffId });
    expect([what, canaries.changes()]).toEqual([what, ""]);
    await real.host.removeLayer({ id: diffId });
  }
});

test("hostile engine: a path that is swapped while verbs run leads nowhere else", {
  timeout: raceTimeoutMs,
}, async () => {
  await using swapper = await HostileProcess.start({ uid: nodeUid, gid: nodeUid });
  const { blob, digest, diffId } = gzipLayer(tarOf(tarEntry({ name: "good", content: "good" })));
  expect(await node.file("mkdirSync", inNodeDir("images/real"))).toMatchObject({ code: "ok" });
  writeFileSync(inNodeDir("images/real/blob"), blob, { mode: 0o644 });
  expect(await node.file("symlinkSync", canaries.dir, inNodeDir("images/false"))).toMatchObject({ code: "ok" });
  await swapper.swap(inNodeDir("images/swap"), [inNodeDir("images/real"), inNodeDir("images/false")]);
  const seen = new Set<string>();
  for (let round = 0; round < unpackRounds; round += 1) {
    const { code, message } = await node.call(real.socketPath, "unpackLayer", {
      blobPath: "images/swap/blob",
      digest,
      diffId,
    });
    seen.add(code);
    expect(canaries.isToldBy(message)).toBe(false);
    if (code === "ok") await real.host.removeLayer({ id: diffId });
  }
  for (let round = 0; round < startRounds; round += 1) {
    const request = {
      ...containerOf(`race-${round}`, "runsc", ["/bin/echo", "written"], {
        stderrPath: "images/swap/out",
        stdoutPath: "images/swap/out",
      }),
      rootfs: "prey",
    };
    seen.add((await node.call(real.socketPath, "runContainer", request)).code);
    await real.host.deleteContainer({ id: request.id });
    expectUnharmed();
  }
  await swapper.rest();
  expectUnharmed();
  // The swaps were seen: without them these rounds would have tried nothing.
  expect([...seen].filter((code) => code === "path-escape" || code === "not-found")).not.toEqual([]);
});

test("hostile engine: a link that a sandbox leaves in its volume leads nowhere", async () => {
  const mounts = [{ source: { kind: "volume", id: "prey" }, target: "/mnt", readOnly: false }] as const;
  const links = [
    "/bin/sh",
    "-c",
    `ln -s ${canaries.dir} /mnt/out; ln -s / /mnt/root; ln -s ../../.. /mnt/up; sleep 600`,
  ];
  await real.host.runContainer({ ...containerOf("plants", "runsc", links, { mounts }), rootfs: "prey" });
  await using stream = await real.host.exec({
    id: "plants",
    process: processOf("/bin/sh", "-c", "until [ -L /mnt/up ]; do sleep 0.05; done"),
    stdin: false,
  });
  expect(await stream.exit).toBe(0);
  for (const subPath of ["out", "out/empty", "root/etc", "up/new"]) {
    const source = { kind: "volume", id: "prey", subPath };
    const request = {
      ...containerOf("follows", "runsc", ["/bin/true"]),
      rootfs: "prey",
      mounts: [{ source, target: "/mnt", readOnly: false }],
    };
    expect([subPath, (await node.call(real.socketPath, "runContainer", request)).code]).toEqual([
      subPath,
      "path-escape",
    ]);
  }
  await real.host.deleteContainer({ id: "plants" });
  expectUnharmed();
});

test("invariant helper-owns-its-files: a helper does not start on directories that others could change", async () => {
  const { instance } = await real.host.info();
  const run = path.join(real.work, "run", instance);
  await real.kill();
  // What a hook in a runtime's state would do at the first sweep.
  mkdirSync(path.join(run, "runsc"), { recursive: true });
  const state = { id: "planted_", spec: { hooks: { poststop: [{ path: canaries.program }] } } };
  writeFileSync(path.join(run, "runsc/planted__sandbox:planted_.state"), JSON.stringify(state));
  for (const dir of [
    real.dataDir,
    path.join(real.dataDir, "host"),
    path.join(real.dataDir, "host/containers"),
    run,
    path.join(run, "runsc"),
  ]) {
    chownSync(dir, nodeUid, nodeUid);
    expect(await real.refusal()).toContain(`${dir} belongs to user ${nodeUid}`);
    chownSync(dir, 0, 0);
    chmodSync(dir, 0o777);
    expect(await real.refusal()).toContain(`${dir} can be written by others (mode 0777)`);
    chmodSync(dir, 0o711);
  }
  expectUnharmed();
  rmSync(path.join(run, "runsc"), { recursive: true });
  await real.start();
});

test("hostile engine: no runtime is called while anybody but root could lead its paths elsewhere", async () => {
  const { instance } = await real.host.info();
  const request = { ...containerOf("led", "runsc", ["/bin/true"]), rootfs: "prey" };
  const run = () => node.call(real.socketPath, "runContainer", request);
  const runDir = path.join(real.work, "run");
  for (const dir of [
    real.dataDir,
    real.hostDir,
    runDir,
    path.join(runDir, instance),
    path.join(runDir, instance, "runsc"),
  ]) {
    const { uid, gid, mode } = statSync(dir);
    chownSync(dir, nodeUid, nodeUid);
    expect([dir, await run()]).toMatchObject([dir, { code: "permission-denied" }]);
    chownSync(dir, uid, gid);
    chmodSync(dir, 0o777);
    expect([dir, await run()]).toMatchObject([dir, { code: "permission-denied" }]);
    chmodSync(dir, mode & 0o7777);
  }
  for (const dir of [real.dataDir, path.join(runDir, instance)]) {
    renameSync(dir, `${dir}.away`);
    mkdirSync(dir, { mode: 0o711 });
    expect([dir, await run()]).toMatchObject([dir, { code: "permission-denied" }]);
    // Nothing was made in what took its place.
    expect(readdirSync(dir)).toEqual([]);
    rmSync(dir, { recursive: true });
    renameSync(`${dir}.away`, dir);
  }
  expect(await run()).toMatchObject({ code: "ok" });
  await real.host.deleteContainer({ id: request.id });
  expectUnharmed();
});

test("hostile engine: the canaries notice what they are there for", () => {
  const own = new Canaries(path.join(real.work, "own-canaries"));
  expect(own.changes()).toBe("");
  chmodSync(own.secret, 0o644);
  expect(own.changes()).toContain("100644");
  chmodSync(own.secret, 0o600);
  expect(own.changes()).toBe("");
  writeFileSync(path.join(own.dir, "ran"), "");
  expect(own.changes()).toBe("the program ran");
});
