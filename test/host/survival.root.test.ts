import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RunContainerRequest, RuntimeName } from "../../packages/server/src/node/host/container.ts";
import { containerOf, processOf, runOnHostUsr, stateOf, sweepAll } from "./contract-case.ts";
import { gzipLayer, tarEntry, tarOf } from "./layer-blob.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
beforeAll(async () => {
  real = await RealHost.open();
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});

const runtimes: readonly RuntimeName[] = ["runsc", "runc"];

test.for(runtimes)("host restart: a container under %s goes on and its exit code is known", async (runtime) => {
  const id = `goes-on-${runtime}`;
  const script = ["/bin/sh", "-c", "sleep 2; echo done; exit 11"];
  await runOnHostUsr(real.host, containerOf(id, runtime, script, { stdoutPath: `logs/${id}` }));
  const before = await stateOf(real.host, id);
  await real.kill();
  await real.start();
  expect(await stateOf(real.host, id)).toEqual(before);
  expect(await real.host.waitContainer({ id, waitMs: 20_000 })).toMatchObject({ exitCode: 11 });
  expect(await real.readOutput(`logs/${id}`)).toBe("done\n");
});

test.for(runtimes)("host restart: an end under %s while the helper was away is known", async (runtime) => {
  const id = `away-${runtime}`;
  await runOnHostUsr(real.host, containerOf(id, runtime, ["/bin/sh", "-c", "sleep 1; exit 12"]));
  await real.kill();
  await expect.poll(() => real.runInside("pgrep", "-f", `host/containers/${id}/`).status, { timeout: 20_000 }).toBe(1);
  await real.start();
  expect(await real.host.waitContainer({ id, waitMs: 20_000 })).toMatchObject({ exitCode: 12 });
});

test("invariant helper-keeps-no-state: a container that joined and ended while the helper was away is known", async () => {
  await runOnHostUsr(real.host, containerOf("away-root", "runsc", ["/bin/sleep", "600"]));
  const joins = containerOf("away-joined", "runsc", ["/bin/sh", "-c", "sleep 1; exit 13"], { sandboxId: "away-root" });
  await runOnHostUsr(real.host, joins);
  await real.kill();
  await new Promise((resolve) => setTimeout(resolve, 1500));
  await real.start();
  expect(await real.host.waitContainer({ id: "away-joined", waitMs: 20_000 })).toMatchObject({ exitCode: 13 });
});

test("host restart: exec works on a container of before", async () => {
  await runOnHostUsr(real.host, containerOf("exec-later", "runsc", ["/bin/sleep", "600"]));
  await real.kill();
  await real.start();
  await using stream = await real.host.exec({
    id: "exec-later",
    process: processOf("/bin/sh", "-c", "exit 5"),
    stdin: false,
  });
  expect(await stream.exit).toBe(5);
});

test("host sweep: a helper in another root with the same path leaves the sandboxes of the first alone, and makes none", async () => {
  const group = { id: "first", cpuShares: 1024, pids: 200 };
  await real.host.ensureCgroup(group);
  await runOnHostUsr(real.host, containerOf("first", "runsc", ["/bin/sleep", "600"], { cgroup: "first" }));
  const before = await stateOf(real.host, "first");
  await using other = await RealHost.open({ at: real.dataDir });
  const { instance } = await real.host.info();
  expect(await other.host.info()).toMatchObject({ instance, cgroupsInUse: true });
  expect((await other.host.sweep(sweepAll)).failed).toEqual([]);
  expect(await stateOf(real.host, "first")).toEqual(before);
  await expect(other.host.ensureCgroup(group)).rejects.toMatchObject({
    code: "busy",
    message: expect.stringMatching(/in use by an engine in another root or container .* another --data-dir$/) as string,
  });
  await real.host.deleteContainer({ id: "first" });
});

test("host sweep: leaves nothing of the instance on the machine", async () => {
  const { instance } = await real.host.info();
  await real.host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
  await real.host.ensureSlot({ slot: 3 });
  await real.host.assignSlot({ slot: 3, address: "10.201.0.3" });
  await real.host.ensureCgroup({ id: "pod", cpuShares: 1024, pids: 200 });
  await real.host.ensureVolume({ id: "vol", sizeBytes: 2 ** 23 });
  const mounts = [{ source: { kind: "volume", id: "vol", subPath: "." }, target: "/mnt", readOnly: false }] as const;
  const endpoint = { slot: 3, address: "10.201.0.3", ingress: [{}], egress: [{}] };
  await real.host.applyRules({ endpoints: [endpoint], gatewayPorts: [], sleeping: [] });
  for (const runtime of runtimes) {
    const more = { cgroup: "pod", mounts, ...(runtime === "runsc" ? { slot: 3 } : {}) };
    await runOnHostUsr(real.host, containerOf(`left-${runtime}`, runtime, ["/bin/sleep", "600"], more));
  }
  expect(real.leftovers(instance).length).toBeGreaterThan(10);
  expect((await real.host.sweep(sweepAll)).failed).toEqual([]);
  await expect.poll(() => real.leftovers(instance), { timeout: 10_000 }).toEqual([]);
});

const layer = gzipLayer(tarOf(tarEntry({ name: "etc/motd", content: "hello" })));

/** Everything that has a record, one of each kind. */
async function makeOfEachKind(): Promise<{ readonly hit: RunContainerRequest; readonly records: readonly string[] }> {
  const { host } = real;
  await real.putBlob("images/layer", layer.blob);
  await host.unpackLayer({ blobPath: "images/layer", digest: layer.digest, diffId: layer.diffId });
  await runOnHostUsr(host, containerOf("beside", "runsc", ["/bin/sleep", "600"]));
  await host.prepareRootfs({ id: "hit", hostUsr: true, writableBytes: 2 ** 26, keepKey: "kept" });
  const hit = containerOf("hit", "runsc", ["/bin/sleep", "600"]);
  await host.runContainer(hit);
  await runOnHostUsr(host, containerOf("ended", "runsc", ["/bin/sh", "-c", "exit 14"]));
  expect(await host.waitContainer({ id: "ended", waitMs: 20_000 })).toMatchObject({ exitCode: 14 });
  await runOnHostUsr(host, containerOf("parented", "runc", ["/bin/sleep", "600"]));
  return {
    hit,
    records: [
      "containers/hit/record.json",
      "containers/ended/exit.json",
      "rootfs/hit.json",
      `layers/${layer.diffId.replace("sha256:", "")}.json`,
    ],
  };
}

test.for([
  ["empty", ""],
  ["torn", '{"id":"hi'],
  ["garbage", "\0\xff"],
  ["of another kind", "{}"],
] as const)("host restart: records that are %s are set aside and named, and nothing else stops", async ([, text]) => {
  const { instance, badRecords: before } = await real.host.info();
  const { hit, records } = await makeOfEachKind();
  await real.kill();
  // The one of a parent is read only where the end of its container comes first.
  const unread = "containers/parented/parent.json";
  for (const name of [...records, unread]) writeFileSync(path.join(real.dataDir, "host", name), text);
  // What a writer leaves that is killed before its record has its name.
  writeFileSync(path.join(real.dataDir, "host/rootfs/.record-0123456789abcdef"), text);
  await real.start();
  const { host } = real;
  expect(await stateOf(host, "beside")).toMatchObject({ status: "running" });
  expect(await host.waitContainer({ id: "ended", waitMs: 20_000 })).toMatchObject({ exitCode: 14 });
  await host.killContainer({ id: "parented", signal: "KILL" });
  expect(await host.waitContainer({ id: "parented", waitMs: 20_000 })).toBeDefined();
  expect(await host.listLayers()).toEqual([{ id: layer.diffId, unpackedBytes: 5, files: 2 }]);
  expect((await host.listRootfs()).map(({ id }) => id)).toContain("hit");
  const other = { id: "other", hostUsr: true, writableBytes: 2 ** 26, keepKey: "kept" };
  await expect(host.prepareRootfs(other)).rejects.toMatchObject({ code: "busy" });
  await expect(host.releaseRootfs({ id: "hit" })).rejects.toMatchObject({ code: "busy" });
  expect(await host.runContainer(hit)).toMatchObject({ status: "running" });
  const isNamed = (name: string): boolean => !before.includes(name) && !name.includes("parent");
  const named = (await host.info()).badRecords.filter(isNamed);
  expect(named.map((name) => name.replace(/\.bad-\d+$/, "")).toSorted()).toEqual(
    records.map((name) => name.replaceAll("/", ".")).toSorted(),
  );
  for (const name of records) expect(real.log()).toContain(name);
  expect((await host.sweep(sweepAll)).failed).toEqual([]);
  await host.removeLayer({ id: layer.diffId });
  await expect.poll(() => real.leftovers(instance), { timeout: 10_000 }).toEqual([]);
  expect(readdirSync(path.join(real.dataDir, "host/rootfs"))).toEqual([]);
});

test.for([
  ["empty", ""],
  ["torn", '{"slot":1,"addr'],
  ["of another kind", "{}"],
] as const)(
  "host restart: the record of a connection that is %s is set aside and named, and its sandbox goes on",
  async ([, text]) => {
    const { badRecords: before } = await real.host.info();
    await real.host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
    await real.host.ensureSlot({ slot: 1 });
    const connect = { slot: 1, address: "10.201.0.9", hostname: "box" };
    const endpoints = [{ slot: 1, address: connect.address, ingress: [], egress: [] }];
    await real.host.applyRules({ endpoints, gatewayPorts: [], sleeping: [] });
    const named = ["/bin/sh", "-c", "read name; echo ok; sleep 600"];
    await runOnHostUsr(real.host, containerOf("waits", "runsc", named, { slot: 1, waiting: true }));
    const joining = (id: string) => containerOf(id, "runsc", ["/bin/sleep", "600"], { sandboxId: "waits", connect });
    await runOnHostUsr(real.host, joining("first"));
    await real.kill();
    writeFileSync(path.join(real.hostDir, "containers/waits/connected.json"), text);
    await real.start();
    await real.host.prepareRootfs({ id: "second", hostUsr: true, writableBytes: 2 ** 26 });
    // No record says whether it has this network; it is not given another one.
    await expect(real.host.runContainer(joining("second"))).rejects.toMatchObject({ code: "busy" });
    for (const id of ["waits", "first"]) expect(await stateOf(real.host, id)).toMatchObject({ status: "running" });
    const bad = (await real.host.info()).badRecords.filter((name) => !before.includes(name));
    expect(bad).toEqual([expect.stringMatching(/^containers\.waits\.connected\.json\.bad-\d+$/)]);
    expect((await real.host.sweep(sweepAll)).failed).toEqual([]);
  },
);

/** What a loss of power leaves: nothing runs, and the records of containers are of another boot. */
async function losePower(ids: readonly string[]): Promise<void> {
  await real.kill();
  for (const id of ids) {
    const found = real.runInside("pgrep", "-f", `host/containers/${id}(/|$)`).stdout.split("\n").filter(Boolean);
    for (const pid of found) process.kill(Number(pid), "SIGKILL");
    await expect.poll(() => real.processesOf(id), { timeout: 10_000 }).toEqual([]);
    const file = path.join(real.hostDir, "containers", id, "record.json");
    const record = { ...(JSON.parse(readFileSync(file, "utf8")) as object), bootId: "another" };
    writeFileSync(file, JSON.stringify(record));
  }
  await real.start();
}

test.for(runtimes)(
  "host restart: what ran under %s in another boot has ended, how is known, and its place is free",
  async (runtime) => {
    const { host: before } = real;
    const { badRecords } = await before.info();
    const ended = containerOf("lost-ended", runtime, ["/bin/sh", "-c", "exit 14"]);
    const ran = containerOf("lost-ran", runtime, ["/bin/sleep", "600"]);
    for (const request of [ended, ran]) await runOnHostUsr(before, request);
    expect(await before.waitContainer({ id: ended.id, waitMs: 20_000 })).toMatchObject({ exitCode: 14 });
    await losePower([ended.id, ran.id]);
    const { host } = real;
    expect(await stateOf(host, ended.id)).toMatchObject({ status: "stopped", exit: { exitCode: 14 } });
    expect(await stateOf(host, ran.id)).toMatchObject({ status: "stopped" });
    for (const { id } of [ended, ran]) {
      await host.deleteContainer({ id });
      await host.releaseRootfs({ id });
    }
    await runOnHostUsr(host, ran);
    expect(await stateOf(host, ran.id)).toMatchObject({ status: "running" });
    expect((await host.info()).badRecords).toEqual(badRecords);
    expect((await host.sweep(sweepAll)).failed).toEqual([]);
  },
);
