import { expect, test } from "vitest";
import type { RunContainerRequest, RuntimeName } from "../../packages/server/src/node/host/container.ts";
import { archiveCases } from "./contract-archive.ts";
import {
  type ContractCase,
  type ContractHost,
  containerOf,
  expectCode,
  mebibyte,
  processOf,
  runOnHostUsr,
  stateOf,
  sweepAll,
} from "./contract-case.ts";
import { freezerCases } from "./contract-freezer.ts";
import { gzipLayer, tarEntry, tarOf } from "./layer-blob.ts";

async function readAll(stream: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

const layerCases: readonly ContractCase[] = [
  {
    title: "unpackLayer: a blob that is not there is not-found",
    async run({ host }) {
      const digest = `sha256:${"0".repeat(64)}`;
      await expectCode("not-found", host.unpackLayer({ blobPath: "images/none", digest, diffId: digest }));
    },
  },
  {
    title: "unpackLayer: twice is the same layer, listed once, removed for good",
    async run({ host, putBlob }) {
      const layer = gzipLayer(tarOf(tarEntry({ name: "etc/motd", content: "hello" })));
      await putBlob("images/good", layer.blob);
      const request = { blobPath: "images/good", digest: layer.digest, diffId: layer.diffId };
      const first = await host.unpackLayer(request);
      expect(first).toEqual({ id: layer.diffId, unpackedBytes: 5, files: 1 });
      expect(await host.unpackLayer(request)).toEqual(first);
      expect(await host.listLayers()).toEqual([first]);
      await host.removeLayer({ id: layer.diffId });
      await host.removeLayer({ id: layer.diffId });
      expect(await host.listLayers()).toEqual([]);
    },
  },
  {
    title: "unpackLayer: bytes that are not what was announced are a digest-mismatch",
    async run({ host, putBlob }) {
      const layer = gzipLayer(tarOf(tarEntry({ name: "a", content: "a" })));
      await putBlob("images/wrong", layer.blob);
      const other = `sha256:${"1".repeat(64)}`;
      const blobPath = "images/wrong";
      await expectCode("digest-mismatch", host.unpackLayer({ blobPath, digest: layer.digest, diffId: other }));
      await expectCode("digest-mismatch", host.unpackLayer({ blobPath, digest: other, diffId: layer.diffId }));
      expect(await host.listLayers()).toEqual([]);
    },
  },
  {
    title: "unpackLayer: device nodes and paths that lead outside are refused",
    async run({ host, putBlob }) {
      const device = gzipLayer(tarOf(tarEntry({ name: "dev/sda", type: "4" })));
      await putBlob("images/device", device.blob);
      await expectCode(
        "entry-refused",
        host.unpackLayer({ blobPath: "images/device", digest: device.digest, diffId: device.diffId }),
      );
      const escape = gzipLayer(tarOf(tarEntry({ name: "../../etc/cron.d/x", content: "x" })));
      await putBlob("images/escape", escape.blob);
      await expectCode(
        "path-escape",
        host.unpackLayer({ blobPath: "images/escape", digest: escape.digest, diffId: escape.diffId }),
      );
    },
  },
  {
    title: "removeLayer: a layer under a root file system is busy",
    async run({ host, putBlob }) {
      const layer = gzipLayer(tarOf(tarEntry({ name: "bin/x", content: "x" })));
      await putBlob("images/used", layer.blob);
      await host.unpackLayer({ blobPath: "images/used", digest: layer.digest, diffId: layer.diffId });
      await host.prepareRootfs({ id: "on-layer", layers: [layer.diffId], writableBytes: 16 * mebibyte });
      await expectCode("busy", host.removeLayer({ id: layer.diffId }));
      await host.releaseRootfs({ id: "on-layer" });
      await host.removeLayer({ id: layer.diffId });
    },
  },
];

const storageCases: readonly ContractCase[] = [
  {
    title: "prepareRootfs: the same request finds it, another source is already-exists",
    async run({ host }) {
      const request = { id: "root-1", hostUsr: true, writableBytes: 16 * mebibyte };
      const first = await host.prepareRootfs(request);
      expect(await host.prepareRootfs(request)).toEqual(first);
      const [listed] = await host.listRootfs();
      expect(listed?.writable?.sizeBytes).toBeGreaterThan(listed?.writable?.usedBytes ?? Number.POSITIVE_INFINITY);
      await expectCode("already-exists", host.prepareRootfs({ ...request, keepKey: "other" }));
      await host.releaseRootfs({ id: "root-1" });
      await host.releaseRootfs({ id: "root-1" });
      expect(await host.listRootfs()).toEqual([]);
    },
  },
  {
    title: "prepareRootfs: a layer that is not there is not-found, no source is invalid-argument",
    async run({ host }) {
      const layers = [`sha256:${"2".repeat(64)}`];
      await expectCode("not-found", host.prepareRootfs({ id: "r", layers, writableBytes: mebibyte }));
      await expectCode("invalid-argument", host.prepareRootfs({ id: "r", writableBytes: mebibyte }));
      await expectCode("invalid-argument", host.prepareRootfs({ id: "../r", hostUsr: true, writableBytes: mebibyte }));
    },
  },
  {
    title: "prepareRootfs: a kept writable layer outlives its root file system",
    async run({ host }) {
      await host.prepareRootfs({ id: "root-2", hostUsr: true, writableBytes: 16 * mebibyte, keepKey: "kept-1" });
      await expectCode("busy", host.deleteWritableLayer({ key: "kept-1" }));
      await host.releaseRootfs({ id: "root-2" });
      expect(await host.listWritableLayers()).toMatchObject([{ key: "kept-1", mounted: false }]);
      await host.deleteWritableLayer({ key: "kept-1" });
      expect(await host.listWritableLayers()).toEqual([]);
    },
  },
  {
    title: "ensureVolume: grows and never shrinks, is kept by release and gone by delete",
    async run({ host }) {
      expect(await host.ensureVolume({ id: "vol", sizeBytes: 8 * mebibyte })).toMatchObject({ mounted: true });
      expect(await host.ensureVolume({ id: "vol", sizeBytes: 16 * mebibyte })).toMatchObject({
        sizeBytes: 16 * mebibyte,
      });
      expect(await host.ensureVolume({ id: "vol", sizeBytes: 8 * mebibyte })).toMatchObject({
        sizeBytes: 16 * mebibyte,
      });
      await host.releaseVolume({ id: "vol" });
      expect(await host.listVolumes()).toMatchObject([{ id: "vol", mounted: false }]);
      await host.deleteVolume({ id: "vol" });
      await host.deleteVolume({ id: "vol" });
      expect(await host.listVolumes()).toEqual([]);
    },
  },
  {
    title: "writeFiles: a path that leads outside is refused",
    async run({ host }) {
      const file = { contentBase64: "", mode: 0o644 };
      await expectCode("path-escape", host.writeFiles({ id: "files", files: [{ path: "../x", ...file }] }));
      await expectCode("invalid-argument", host.writeFiles({ id: "files", files: [{ path: "/x", ...file }] }));
      await host.removeFiles({ id: "files" });
    },
  },
];

const kernelCases: readonly ContractCase[] = [
  {
    title: "assignSlot: needs the network and the slot",
    async run({ host }) {
      await host.ensureSlot({ slot: 7 });
      await expectCode("not-found", host.assignSlot({ slot: 7, address: "10.201.0.7" }));
      await host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
      await expectCode("not-found", host.assignSlot({ slot: 8, address: "10.201.0.8" }));
      expect(await host.assignSlot({ slot: 7, address: "10.201.0.7" })).toMatchObject({ address: "10.201.0.7" });
      expect(await host.assignSlot({ slot: 7, address: "10.201.0.9" })).toMatchObject({ address: "10.201.0.9" });
      expect(await host.listSlots()).toMatchObject([{ slot: 7, address: "10.201.0.9" }]);
      await host.releaseSlot({ slot: 7 });
      await host.releaseSlot({ slot: 7 });
      expect(await host.listSlots()).toEqual([]);
    },
  },
  {
    title: "changeRules: builds on the revision in force, and on no other",
    async run({ host }) {
      await host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
      const nothing = { sleeping: [], removed: [], groups: [], removedGroups: [] };
      const change = {
        ...nothing,
        base: "1",
        revision: "2",
        endpoints: [{ slot: 1, address: "10.201.0.2", ingress: [], egress: [] }],
      };
      await expectCode("not-found", host.changeRules({ ...change, base: "unknown" }));
      await host.applyRules({ revision: "1", endpoints: [], gatewayPorts: [], sleeping: [] });
      await host.changeRules(change);
      await expectCode("not-found", host.changeRules(change));
      await host.changeRules({ ...nothing, base: "2", revision: "3", endpoints: [], removed: ["10.201.0.2"] });
      await expectCode("not-found", host.changeRules({ ...change, base: "1" }));
    },
  },
  {
    title: "applyRules: text that is no range or address is invalid-argument",
    async run({ host }) {
      await host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
      const endpoint = { slot: 1, address: "10.201.0.2", ingress: [], egress: [] };
      const cidr = "0.0.0.0/0 accept; flush ruleset";
      await expectCode(
        "invalid-argument",
        host.applyRules({
          endpoints: [{ ...endpoint, egress: [{ blocks: [{ cidr }] }] }],
          gatewayPorts: [],
          sleeping: [],
        }),
      );
      await expectCode(
        "invalid-argument",
        host.applyRules({ endpoints: [{ ...endpoint, address: "10.201.0.2;" }], gatewayPorts: [], sleeping: [] }),
      );
      await host.applyRules({ endpoints: [endpoint], gatewayPorts: [], sleeping: [] });
    },
  },
  {
    title: "cgroupStats: answers for a cgroup and is not-found without",
    async run({ host }) {
      await expectCode("not-found", host.cgroupStats({ id: "pod" }));
      expect(await host.ensureCgroup({ id: "pod", cpuShares: 1024, pids: 100 })).toEqual({ unenforced: [] });
      const stats = await host.cgroupStats({ id: "pod" });
      expect(stats).toMatchObject({ oomKills: 0 });
      // A thread of the helper may be waiting in it for what is started next.
      expect(stats.pids).toBeLessThanOrEqual(1);
      expect(stats).not.toHaveProperty("sharedBytes");
      expect(await host.cgroupStats({ id: "pod", shared: true })).toMatchObject({ sharedBytes: 0 });
      await host.removeCgroup({ id: "pod" });
      await host.removeCgroup({ id: "pod" });
      await expectCode("not-found", host.cgroupStats({ id: "pod" }));
    },
  },
];

const containerCases: readonly ContractCase[] = [
  {
    title: "runContainer: output and exit code arrive",
    async run({ host, readOutput }, runtime) {
      const script = ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"];
      const paths = { stdoutPath: "logs/out", stderrPath: "logs/err" };
      await runOnHostUsr(host, containerOf("exits", runtime, script, paths));
      expect(await host.waitContainer({ id: "exits", waitMs: 20_000 })).toMatchObject({ exitCode: 7 });
      expect(await stateOf(host, "exits")).toMatchObject({ status: "stopped", exit: { exitCode: 7 } });
      expect(await readOutput("logs/out")).toBe("out\n");
      expect(await readOutput("logs/err")).toBe("err\n");
    },
  },
  {
    title: "runContainer: the same request finds it, another is already-exists",
    async run({ host }, runtime) {
      const request = containerOf("again", runtime, ["/bin/sleep", "600"]);
      await runOnHostUsr(host, request);
      const state = await stateOf(host, "again");
      expect(await host.runContainer(request)).toEqual(state);
      await expectCode("already-exists", host.runContainer({ ...request, hostname: "other" }));
    },
  },
  {
    title: "runContainer: a program that is not there is start-failed and leaves nothing",
    async run({ host }, runtime) {
      const request = containerOf("absent", runtime, ["/bin/no-such-program"]);
      await expectCode("start-failed", runOnHostUsr(host, request));
      expect(await host.listContainers()).toEqual([]);
      await expectCode("not-found", host.waitContainer({ id: "absent", waitMs: 0 }));
    },
  },
  {
    title: "runContainer: what it needs and is not there is not-found",
    async run({ host }, runtime) {
      const request = containerOf("lacks", runtime, ["/bin/true"]);
      await expectCode("not-found", host.runContainer(request));
      await host.prepareRootfs({ id: "lacks", hostUsr: true, writableBytes: 16 * mebibyte });
      await expectCode("not-found", host.runContainer({ ...request, slot: 99 }));
      await expectCode("not-found", host.runContainer({ ...request, cgroup: "none" }));
      const mount = { source: { kind: "volume", id: "none" }, target: "/mnt", readOnly: false } as const;
      await expectCode("not-found", host.runContainer({ ...request, mounts: [mount] }));
      const path = { source: { kind: "host-path", path: "/root" }, target: "/mnt", readOnly: true } as const;
      await expectCode("host-path-denied", host.runContainer({ ...request, mounts: [path] }));
    },
  },
  {
    title: "killContainer: the exit tells the signal, a second kill succeeds",
    async run({ host }, runtime) {
      await runOnHostUsr(host, containerOf("killed", runtime, ["/bin/sleep", "600"]));
      expect(await host.waitContainer({ id: "killed", waitMs: 1 })).toBeUndefined();
      await expectCode("invalid-argument", host.killContainer({ id: "killed", signal: "SIGKILL; reboot" }));
      await host.killContainer({ id: "killed", signal: "KILL" });
      const exit = await host.waitContainer({ id: "killed", waitMs: 20_000 });
      expect(exit).toMatchObject({ exitCode: 137, signal: 9 });
      await host.killContainer({ id: "killed", signal: "KILL" });
    },
  },
  {
    title: "releaseRootfs: busy while a container runs on it",
    async run({ host }, runtime) {
      await runOnHostUsr(host, containerOf("busy", runtime, ["/bin/sleep", "600"]));
      await expectCode("busy", host.releaseRootfs({ id: "busy" }));
      await host.deleteContainer({ id: "busy" });
      await host.deleteContainer({ id: "busy" });
      await host.releaseRootfs({ id: "busy" });
    },
  },
  {
    title: "prepareRootfs: a spare becomes the writable layer of the first who names it and has none",
    async run({ host }) {
      const writableBytes = 64 * mebibyte;
      const spare = { spare: true, writableBytes };
      const ids = async (): Promise<string[]> => (await host.listRootfs()).map(({ id }) => id).sort();
      await expectCode("invalid-argument", host.prepareRootfs({ id: "spare-1", ...spare, hostUsr: true }));
      await expectCode("invalid-argument", host.prepareRootfs({ id: "spare-1", ...spare, keepKey: "key" }));
      for (const id of ["spare-1", "spare-2", "spare-3"]) await host.prepareRootfs({ id, ...spare });
      const kept = { id: "takes", hostUsr: true, writableBytes, keepKey: "spared" };
      for (let time = 0; time < 2; time += 1) await host.prepareRootfs({ ...kept, writableFrom: "spare-1" });
      expect(await ids()).toEqual(["spare-2", "spare-3", "takes"]);
      await host.releaseRootfs({ id: "takes" });
      expect(await host.listWritableLayers()).toMatchObject([
        { key: "spared", sizeBytes: writableBytes, mounted: false },
      ]);
      await host.prepareRootfs({ ...kept, writableFrom: "spare-2" });
      await expectCode(
        "invalid-argument",
        host.prepareRootfs({ ...kept, id: "plain", keepKey: "other", writableFrom: "takes" }),
      );
      const larger = { id: "larger", hostUsr: true, writableBytes: 2 * writableBytes, writableFrom: "spare-2" };
      await host.prepareRootfs(larger);
      await host.prepareRootfs({ id: "plain", hostUsr: true, writableBytes, writableFrom: "spare-3" });
      expect(await ids()).toEqual(["larger", "plain", "spare-2", "takes"]);
      for (const id of await ids()) await host.releaseRootfs({ id });
      expect(await ids()).toEqual([]);
    },
  },
  {
    title: "prepareRootfs: a kept writable layer has one holder at a time",
    async run({ host }, runtime) {
      const root = { hostUsr: true, writableBytes: 64 * mebibyte, keepKey: "sole" };
      await host.prepareRootfs({ id: "holds", ...root });
      const refusal = host.prepareRootfs({ id: "wants", ...root });
      await expectCode("busy", refusal);
      await expect(refusal).rejects.toThrow("held by root file system holds");
      await host.prepareRootfs({ id: "holds", ...root });
      await host.runContainer(containerOf("holds", runtime, ["/bin/sleep", "600"]));
      await expectCode("busy", host.releaseRootfs({ id: "holds" }));
      await expectCode("busy", host.prepareRootfs({ id: "wants", ...root }));
      await expectCode("busy", host.deleteWritableLayer({ key: "sole" }));
      await host.deleteContainer({ id: "holds" });
      await host.releaseRootfs({ id: "holds" });
      await host.prepareRootfs({ id: "wants", ...root });
      await expectCode("busy", host.prepareRootfs({ id: "holds", ...root }));
    },
  },
  {
    title: "deleteContainer: a name that begins another's touches only its own",
    async run({ host }, runtime) {
      await runOnHostUsr(host, containerOf("name-1", runtime, ["/bin/sleep", "600"]));
      await runOnHostUsr(host, containerOf("name-12", runtime, ["/bin/sleep", "600"]));
      await host.killContainer({ id: "name-1", signal: "KILL" });
      expect(await host.waitContainer({ id: "name-1", waitMs: 20_000 })).toMatchObject({ signal: 9 });
      await host.deleteContainer({ id: "name-1" });
      await host.deleteContainer({ id: "name" });
      expect(await stateOf(host, "name-12")).toMatchObject({ status: "running" });
    },
  },
  {
    title: "runContainer: only a sandbox that waits can be given a network and a name by what joins it, and only once",
    async run({ host }, runtime) {
      if (runtime !== "runsc") return;
      await host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
      for (const slot of [1, 2]) await host.ensureSlot({ slot });
      const named = ["/bin/sh", "-c", "read name; echo ok; sleep 600"];
      await runOnHostUsr(host, containerOf("waits", runtime, named, { slot: 1, waiting: true }));
      await runOnHostUsr(host, containerOf("waits-not", runtime, ["/bin/sleep", "600"], { slot: 2 }));
      await host.prepareRootfs({ id: "joins", hostUsr: true, writableBytes: 64 * mebibyte });
      const connect = { slot: 1, address: "10.201.0.9", hostname: "box" };
      const endpoints = [{ slot: 1, address: connect.address, ingress: [], egress: [] }];
      const joining = (id: string, more: Partial<RunContainerRequest>): RunContainerRequest => ({
        ...containerOf(id, runtime, ["/bin/sleep", "600"], { sandboxId: "waits", connect, ...more }),
        rootfs: "joins",
      });
      const { sandboxId: _none, ...alone } = joining("joins-1", {});
      await expectCode("invalid-argument", host.runContainer(alone));
      const nameless = joining("joins-1", { connect: { ...connect, hostname: "no name" } });
      await expectCode("invalid-argument", host.runContainer(nameless));
      await expectCode("not-found", host.runContainer(joining("joins-1", { sandboxId: "nobody" })));
      const elsewhere = { sandboxId: "waits-not", connect: { ...connect, slot: 2 } };
      await expectCode("busy", host.runContainer(joining("joins-1", elsewhere)));
      const running = host.runContainer(joining("joins-1", {}));
      await new Promise((resolve) => setTimeout(resolve, 300));
      // Its rules are awaited, not only its network.
      expect((await host.listContainers()).find(({ id }) => id === "joins-1")?.status).not.toBe("running");
      await host.applyRules({ endpoints, gatewayPorts: [], sleeping: [] });
      expect(await running).toMatchObject({ status: "running" });
      await host.runContainer(joining("joins-2", {}));
      await expectCode("busy", host.runContainer(joining("joins-3", { connect: { ...connect, hostname: "other" } })));
      expect((await host.listSlots()).find(({ slot }) => slot === 1)).toMatchObject({ address: "10.201.0.9" });
    },
  },
  {
    title: "runContainer: a handshake takes the output for itself",
    async run({ host }, runtime) {
      await host.prepareRootfs({ id: "talks", hostUsr: true, writableBytes: 64 * mebibyte });
      const talking = containerOf("talks", runtime, ["/bin/sh", "-c", "echo ready; read word; sleep 600"]);
      await expectCode(
        "invalid-argument",
        host.runContainer({ ...talking, handshake: true, stdoutPath: "logs/talks" }),
      );
      expect(await host.runContainer({ ...talking, handshake: true })).toMatchObject({ status: "running" });
    },
  },
  {
    title: "runContainer: what waits has a slot, no name and joins nobody",
    async run({ host }) {
      await host.prepareRootfs({ id: "waits-ill", hostUsr: true, writableBytes: 64 * mebibyte });
      await host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
      await host.ensureSlot({ slot: 1 });
      for (const more of [{}, { slot: 1, hostname: "box" }, { slot: 1, stdoutPath: "logs/waits-ill" }]) {
        const request = containerOf("waits-ill", "runsc", ["/bin/sleep", "600"], { ...more, waiting: true });
        await expectCode("invalid-argument", host.runContainer(request));
      }
    },
  },
  {
    title: "runContainer: a second container joins a sandbox and ends with it",
    async run({ host }, runtime) {
      await runOnHostUsr(host, containerOf("root", runtime, ["/bin/sleep", "600"]));
      await runOnHostUsr(host, containerOf("joins", runtime, ["/bin/sh", "-c", "exit 3"], { sandboxId: "root" }));
      expect(await host.waitContainer({ id: "joins", waitMs: 20_000 })).toMatchObject({ exitCode: 3 });
      await runOnHostUsr(host, containerOf("stays", runtime, ["/bin/sleep", "600"], { sandboxId: "root" }));
      expect(await stateOf(host, "stays")).toMatchObject({ status: "running", sandboxId: "root" });
      await host.deleteContainer({ id: "root" });
      expect(await host.listContainers()).toEqual([]);
    },
  },
  {
    title: "cloneImage: an emptyDir is copied once, and what was written later is only in one of them",
    async run({ host }) {
      await host.ensureEmptyDir({ id: "first", sizeBytes: 16 << 20 });
      const clone = { kind: "empty-dir", from: "first", to: "second", pauseMaxMs: 10_000 } as const;
      expect((await host.cloneImage(clone)).usedBytes).toBeGreaterThan(0);
      expect((await host.cloneImage(clone)).pausedMs).toBe(0);
      await host.ensureEmptyDir({ id: "second", sizeBytes: 16 << 20 });
      expect((await host.listEmptyDirs()).map(({ id }) => id).sort()).toEqual(["first", "second"]);
      await expectCode("invalid-argument", host.cloneImage({ ...clone, to: "first" }));
      for (const id of ["first", "second"]) await host.removeEmptyDir({ id });
    },
  },
  {
    title: "saveSandbox: what is not there is not-found, runc cannot, and a name is taken once",
    async run({ host }, runtime) {
      await expectCode("not-found", host.saveSandbox({ id: "none", saved: "state" }));
      await expectCode("not-found", host.continueSandbox({ id: "none" }));
      await runOnHostUsr(host, containerOf("root", runtime, ["/bin/sleep", "600"]));
      await expectCode("invalid-argument", host.saveSandbox({ id: "root", saved: "../x" }));
      if (runtime === "runc") return expectCode("unsupported", host.saveSandbox({ id: "root", saved: "state" }));
      const state = await host.saveSandbox({ id: "root", saved: "state" });
      expect(state.containers).toEqual([{ id: "root", root: true }]);
      expect(await host.saveSandbox({ id: "root", saved: "state" })).toEqual(state);
      expect(await host.listSaved()).toEqual([state]);
      await expectCode("busy", host.exec({ id: "root", process: processOf("/bin/true"), stdin: false }));
      for (const kind of ["writable", "volume", "empty-dir"] as const)
        await expectCode("not-found", host.cloneImage({ kind, from: "none", to: "copy", pauseMaxMs: 1 }));
      await expectCode("not-found", host.copySaved({ from: "none", to: "copy" }));
      await expectCode("invalid-argument", host.copySaved({ from: "state", to: "state" }));
      for (let times = 0; times < 2; times += 1)
        expect(await host.copySaved({ from: "state", to: "copy" })).toEqual({ ...state, id: "copy", reusable: true });
      await host.continueSandbox({ id: "root" });
      await expectCode("restore-refused", host.copySaved({ from: "state", to: "later" }));
      expect((await host.listSaved()).map(({ id }) => id)).toEqual(["copy", "state"]);
      await host.discardSaved({ id: "copy" });
      await expectCode("already-exists", host.saveSandbox({ id: "root", saved: "state" }));
      expect((await host.sweep({ ...sweepAll, saved: ["state"] })).failed).toEqual([]);
      expect(await host.listSaved()).toMatchObject([{ id: "state", unusable: expect.stringContaining("went on") }]);
      for (const id of ["state", "state", "none"]) await host.discardSaved({ id });
      expect(await host.listSaved()).toEqual([]);
    },
  },
  {
    title: "runContainer: only a state that is there, and a container of it, can be restored",
    async run({ host }, runtime) {
      const request = containerOf("back", runtime, ["/bin/sleep", "600"]);
      await runOnHostUsr(host, containerOf("root", runtime, ["/bin/sleep", "600"]));
      await host.prepareRootfs({ id: "back", hostUsr: true, writableBytes: 64 * mebibyte });
      const restoreFrom = { saved: "state", container: "root" };
      const absent = runtime === "runc" ? "unsupported" : "not-found";
      await expectCode(absent, host.runContainer({ ...request, restoreFrom }));
      await expectCode("invalid-argument", host.waitRestored({ id: "root", waitMs: 0 }));
      if (runtime === "runc") return;
      await host.saveSandbox({ id: "root", saved: "state" });
      await expectCode("busy", host.runContainer({ ...request, restoreFrom }));
      await host.deleteContainer({ id: "root" });
      const wrong = { ...restoreFrom, container: "other" };
      await expectCode("invalid-argument", host.runContainer({ ...request, restoreFrom: wrong }));
      await host.runContainer({ ...request, restoreFrom });
      expect(await host.waitRestored({ id: "back", waitMs: 20_000 })).toBe("restored");
      expect(await host.listSaved()).toMatchObject([{ unusable: expect.stringContaining("went on") }]);
      expect(await stateOf(host, "back")).toMatchObject({ status: "running" });
    },
  },
];

const execCases: readonly ContractCase[] = [
  {
    title: "exec: input, output and exit code pass through",
    async run({ host }, runtime) {
      await runOnHostUsr(host, containerOf("execs", runtime, ["/bin/sleep", "600"]));
      const cat = await host.exec({ id: "execs", process: processOf("/bin/cat"), stdin: true });
      cat.stdin.end("through");
      expect(await readAll(cat.stdout)).toBe("through");
      expect(await cat.exit).toBe(0);
      const script = processOf("/bin/sh", "-c", "echo to-err >&2; exit 42");
      await using failing = await host.exec({ id: "execs", process: script, stdin: false });
      expect(await readAll(failing.stderr)).toBe("to-err\n");
      expect(await failing.exit).toBe(42);
    },
  },
  {
    title: "exec: a program that is not there is start-failed, a container that is not there not-found",
    async run({ host }, runtime) {
      await runOnHostUsr(host, containerOf("execs-not", runtime, ["/bin/sleep", "600"]));
      const process = processOf("/bin/no-such-program");
      await expectCode("start-failed", host.exec({ id: "execs-not", process, stdin: false }));
      await expectCode("not-found", host.exec({ id: "nobody", process, stdin: false }));
    },
  },
  {
    title: "exec: closing the stream ends the process",
    async run({ host }, runtime) {
      await runOnHostUsr(host, containerOf("closes", runtime, ["/bin/sleep", "600"]));
      const stream = await host.exec({ id: "closes", process: processOf("/bin/sleep", "601"), stdin: false });
      await stream.close();
      await stream.exit.catch(() => {});
      expect(await stateOf(host, "closes")).toMatchObject({ status: "running" });
    },
  },
];

const sweepCases: readonly ContractCase[] = [
  {
    title: "sweep: keeps what is wanted and removes the rest",
    async run({ host }, runtime) {
      await host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
      for (const slot of [1, 2]) await host.ensureSlot({ slot });
      await host.ensureCgroup({ id: "left", cpuShares: 1024, pids: 100 });
      await host.ensureEmptyDir({ id: "left", memory: true, sizeBytes: mebibyte });
      await runOnHostUsr(host, containerOf("wanted", runtime, ["/bin/sleep", "600"]));
      await runOnHostUsr(host, containerOf("left", runtime, ["/bin/sleep", "600"]));
      const wanted = { containers: ["wanted"], rootfs: ["wanted"], slots: [1], network: true };
      const report = await host.sweep({ ...sweepAll, ...wanted });
      expect(report.failed).toEqual([]);
      expect(report.removed.map((one) => `${one.kind} ${one.name}`).toSorted()).toEqual(
        ["cgroup left", "container left", "empty-dir left", "rootfs left", "slot 2"].toSorted(),
      );
      expect(await stateOf(host, "wanted")).toMatchObject({ status: "running" });
    },
  },
];

const cases = [
  ...layerCases,
  ...storageCases,
  ...kernelCases,
  ...freezerCases,
  ...archiveCases,
  ...containerCases,
  ...execCases,
  ...sweepCases,
];

/** Declares one test per behaviour; each begins and ends with nothing. */
export function testHostContract(subjectName: string, runtime: RuntimeName, subject: () => ContractHost): void {
  test.for(cases)(`${subjectName}: $title`, async (one) => {
    const held = subject();
    try {
      await one.run(held, runtime);
    } finally {
      const report = await held.host.sweep(sweepAll);
      for (const layer of await held.host.listLayers()) await held.host.removeLayer({ id: layer.id });
      for (const volume of await held.host.listVolumes()) await held.host.deleteVolume({ id: volume.id });
      expect(report.failed).toEqual([]);
    }
  });
}
