import { readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ContainerMount, RuntimeName } from "../../packages/server/src/node/host/container.ts";
import { containerOf, processOf, runOnHostUsr } from "./contract-case.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
beforeAll(async () => {
  real = await RealHost.open();
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});

const runtimes: readonly RuntimeName[] = ["runsc", "runc"];

async function readAll(stream: AsyncIterable<Buffer>): Promise<string> {
  let text = "";
  for await (const chunk of stream) text += chunk.toString();
  return text;
}

async function execText(id: string, script: string): Promise<string> {
  await using stream = await real.host.exec({ id, process: processOf("/bin/sh", "-c", script), stdin: false });
  const text = await readAll(stream.stdout);
  await stream.exit;
  return text;
}

const base64 = (text: string) => Buffer.from(text).toString("base64");

/** Puts a program where only root can, as `up` does. */
async function putProgram(name: string): Promise<void> {
  await mkdir(path.join(real.dataDir, "bin"), { recursive: true });
  await writeFile(path.join(real.dataDir, "bin", name), "#!/bin/sh\necho tool\n", { mode: 0o755 });
}

test.for(runtimes)("container mounts: volumes, files and limits hold under %s", async (runtime) => {
  const { host } = real;
  const id = `mounts-${runtime}`;
  await host.ensureVolume({ id, sizeBytes: 8 * 2 ** 20, gid: 1000 });
  await host.ensureEmptyDir({ id, memory: true, sizeBytes: 2 ** 20 });
  await host.writeFiles({ id, files: [{ path: "sub/key", contentBase64: base64("old"), mode: 0o444 }] });
  await putProgram("tool-0123456789ab");
  const mounts: ContainerMount[] = [
    { source: { kind: "volume", id }, target: "/volume", readOnly: false },
    { source: { kind: "empty-dir", id }, target: "/memory", readOnly: false },
    { source: { kind: "files", id }, target: "/files", readOnly: true },
    { source: { kind: "tmpfs", sizeBytes: 2 ** 20 }, target: "/scratch", readOnly: false },
    { source: { kind: "program", name: "tool-0123456789ab" }, target: "/usr/local/bin/tool", readOnly: false },
  ];
  await runOnHostUsr(host, containerOf(id, runtime, ["/bin/sleep", "600"], { mounts }));
  expect(await execText(id, "stat -c %g:%a /volume; cat /files/sub/key")).toBe("1000:2775\nold");
  const fill = "head -c 20M /dev/zero > $1/big 2>/dev/null; stat -c %s $1/big; rm $1/big";
  for (const dir of ["/volume", "/memory", "/scratch"]) {
    const written = Number(await execText(id, fill.replaceAll("$1", dir)));
    expect(written).toBeLessThan(9 * 2 ** 20);
  }
  expect(
    Number(await execText(id, "head -c 90M /dev/zero > /root/big 2>/dev/null; stat -c %s /root/big")),
  ).toBeLessThan(64 * 2 ** 20);
  const tries =
    "touch /files/x /usr/x 2>/dev/null; echo $?; (echo >> /usr/local/bin/tool) 2>/dev/null; /usr/local/bin/tool";
  expect(await execText(id, tries)).toBe("1\ntool\n");
  await host.writeFiles({ id, files: [{ path: "sub/key", contentBase64: base64("new"), mode: 0o444 }] });
  expect(await execText(id, "cat /files/sub/key")).toBe("new");
});

test.for(runtimes)("container terminal: has a size, changes it and echoes under %s", async (runtime) => {
  const id = `tty-${runtime}`;
  await runOnHostUsr(real.host, containerOf(id, runtime, ["/bin/sleep", "600"]));
  // runc before 1.2 gives a terminal its size a moment after the process has started.
  const script = "until stty size | grep '30 100'; do sleep 0.05; done; read line; stty size; echo got-$line";
  await using stream = await real.host.exec({
    id,
    process: processOf("/bin/sh", "-c", script),
    terminal: { columns: 100, rows: 30 },
    stdin: true,
  });
  let text = "";
  stream.stdout.on("data", (bytes: Buffer) => {
    text += bytes.toString();
  });
  await expect.poll(() => text).toContain("30 100");
  stream.resize({ columns: 120, rows: 40 });
  await new Promise((resolve) => setTimeout(resolve, 200));
  stream.stdin.write("word\n");
  expect(await stream.exit).toBe(0);
  expect(text).toContain("40 120");
  expect(text).toContain("got-word");
});

test.for(runtimes)("container limits: a memory hog dies and the count tells under %s", async (runtime) => {
  const { host } = real;
  const id = `hog-${runtime}`;
  await host.ensureCgroup({ id, cpuShares: 1024, pids: 300, memoryBytes: 200 * 2 ** 20 });
  const hog = ["/usr/bin/python3", "-c", "b=bytearray(400*2**20); print(len(b))"];
  await runOnHostUsr(host, containerOf(id, runtime, hog, { cgroup: id, stdoutPath: `logs/${id}` }));
  const exit = await host.waitContainer({ id, waitMs: 60_000 });
  expect(exit?.exitCode).not.toBe(0);
  expect(await real.readOutput(`logs/${id}`)).toBe("");
  expect((await host.cgroupStats({ id })).oomKills).toBeGreaterThan(0);
});

test("container limits: a fork bomb under runc stays within its pids", async () => {
  const { host } = real;
  await host.ensureCgroup({ id: "bomb", cpuShares: 1024, pids: 64 });
  const bomb = ["/bin/bash", "-c", "for i in $(seq 500); do sleep 60 & done; sleep 60"];
  await runOnHostUsr(host, containerOf("bomb", "runc", bomb, { cgroup: "bomb" }));
  await expect.poll(async () => (await host.cgroupStats({ id: "bomb" })).pids, { timeout: 10_000 }).toBeGreaterThan(50);
  expect((await host.cgroupStats({ id: "bomb" })).pids).toBeLessThanOrEqual(64);
});

test("container mounts: a link that a sandbox planted is not followed by subPath", async () => {
  const { host } = real;
  await host.ensureVolume({ id: "planted", sizeBytes: 2 ** 23 });
  const mounts: ContainerMount[] = [{ source: { kind: "volume", id: "planted" }, target: "/v", readOnly: false }];
  await runOnHostUsr(host, containerOf("plants", "runsc", ["/bin/sleep", "600"], { mounts }));
  await execText("plants", "ln -s /etc /v/link; mkdir /v/dir");
  const follow = async (id: string, subPath: string) => {
    await host.prepareRootfs({ id, hostUsr: true, writableBytes: 2 ** 24 });
    const source = { kind: "volume", id: "planted", subPath } as const;
    return host.runContainer(
      containerOf(id, "runsc", ["/bin/true"], { mounts: [{ source, target: "/v", readOnly: false }] }),
    );
  };
  await expect(follow("by-link", "link")).rejects.toMatchObject({ code: "path-escape" });
  await expect(follow("by-link-below", "link/below")).rejects.toMatchObject({ code: "path-escape" });
  await expect(follow("upwards", "../../..")).rejects.toMatchObject({ code: "path-escape" });
  await expect(follow("inside", "dir")).resolves.toMatchObject({ id: "inside" });
  // As on Kubernetes, a directory that is missing is made; where else but in the volume.
  await expect(follow("made", "nothing/yet")).resolves.toMatchObject({ id: "made" });
  expect(await execText("plants", "ls /v/nothing")).toBe("yet\n");
});

/** CAP_SYS_RESOURCE is bit 24; without it the kernel grows no mounted file system. */
function canGrowMounted(): boolean {
  const mask = /CapEff:\s*([0-9a-f]+)/.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  return ((BigInt(`0x${mask}`) >> 24n) & 1n) === 1n;
}

test.for(runtimes)(
  "container volumes: one in use under %s grows, or is busy where the kernel cannot",
  async (runtime) => {
    const { host } = real;
    const id = `grows-${runtime}`;
    await host.ensureVolume({ id, sizeBytes: 16 * 2 ** 20 });
    const mounts: ContainerMount[] = [{ source: { kind: "volume", id }, target: "/v", readOnly: false }];
    const request = containerOf(id, runtime, ["/bin/sleep", "600"], { mounts });
    await runOnHostUsr(host, request);
    const fill = "head -c 40M /dev/zero > /v/big 2>/dev/null; stat -c %s /v/big";
    expect(Number(await execText(id, fill))).toBeLessThan(16 * 2 ** 20);
    await expect(host.releaseVolume({ id })).rejects.toMatchObject({ code: "busy" });
    const larger = { id, sizeBytes: 64 * 2 ** 20 };
    if (!canGrowMounted()) {
      await expect(host.ensureVolume(larger)).rejects.toMatchObject({ code: "busy" });
      await host.deleteContainer({ id });
      await host.ensureVolume(larger);
      await host.runContainer(request);
    }
    expect(await host.ensureVolume(larger)).toMatchObject({ sizeBytes: 64 * 2 ** 20 });
    expect(Number(await execText(id, fill))).toBe(40 * 2 ** 20);
  },
);

test.for(runtimes)("container handshake: the program waits for go, the answer for ready under %s", async (runtime) => {
  const id = `talks-${runtime}`;
  const script = 'sleep 0.3; echo ready; read word; test "$word" = go && sleep 0.3 && exit 5';
  const beganMs = performance.now();
  await real.host.prepareRootfs({ id, hostUsr: true, writableBytes: 64 * 2 ** 20 });
  const request = containerOf(id, runtime, ["/bin/sh", "-c", script], { handshake: true });
  expect(await real.host.runContainer(request)).toMatchObject({ status: "running", serving: true });
  expect(performance.now() - beganMs).toBeGreaterThan(300);
  expect(await real.host.waitContainer({ id, waitMs: 20_000 })).toMatchObject({ exitCode: 5 });
});

test.for(runtimes)("container handshake: one that ends without a word is not waited for under %s", async (runtime) => {
  const id = `silent-${runtime}`;
  await real.host.prepareRootfs({ id, hostUsr: true, writableBytes: 64 * 2 ** 20 });
  const beganMs = performance.now();
  const request = containerOf(id, runtime, ["/bin/sh", "-c", "sleep 0.2; exit 3"], { handshake: true });
  expect((await real.host.runContainer(request)).serving).not.toBe(true);
  expect(performance.now() - beganMs).toBeLessThan(8_000);
  expect(await real.host.waitContainer({ id, waitMs: 20_000 })).toMatchObject({ exitCode: 3 });
});
