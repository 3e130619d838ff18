import { afterAll, beforeAll, expect, test } from "vitest";
import type { Host } from "../../packages/server/src/node/host/host.ts";
import { containerOf, processOf } from "./contract.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
beforeAll(async () => {
  real = await RealHost.open();
  await real.host.ensureNetwork({ cidr: "10.201.0.0/16", gateway: "10.201.0.1" });
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});

async function execText(host: Host, id: string, script: string): Promise<string> {
  await using stream = await host.exec({ id, process: processOf("/bin/sh", "-c", script), stdin: false });
  const chunks: Buffer[] = [];
  for await (const chunk of stream.stdout) chunks.push(chunk as Buffer);
  await stream.exit;
  return Buffer.concat(chunks).toString();
}

const counting = ["/bin/bash", "-c", "n=0; while true; do n=$((n+1)); echo $n > /dev/shm/n; sleep 0.05; done"];

test("checkpointContainer: memory, files and address come back, also in a fork", { timeout: 60_000 }, async () => {
  const { host } = real;
  await host.ensureSlot({ slot: 1 });
  await host.assignSlot({ slot: 1, address: "10.201.0.5" });
  await host.prepareRootfs({ id: "box", hostUsr: true, writableBytes: 2 ** 26, keepKey: "box" });
  const request = containerOf("box", "runsc", counting, { slot: 1, hostname: "box" });
  await host.runContainer(request);
  await execText(host, "box", "echo kept > /root/kept");
  await host.pauseContainer({ id: "box" });
  await host.saveWritableLayer({ id: "box", imagePath: "snapshots/box.img" });
  const made = await host.checkpointContainer({ id: "box", imagePath: "snapshots/box" });
  expect(made.sizeBytes).toBeGreaterThan(0);
  await host.deleteContainer({ id: "box" });

  await host.assignSlot({ slot: 1, address: "10.201.0.5" });
  await host.runContainer({ ...request, restore: { imagePath: "snapshots/box" } });
  const first = Number(await execText(host, "box", "cat /dev/shm/n"));
  expect(first).toBeGreaterThan(0);
  await expect.poll(async () => Number(await execText(host, "box", "cat /dev/shm/n"))).toBeGreaterThan(first);
  expect(await execText(host, "box", "cat /root/kept; cat /proc/net/fib_trie 2>/dev/null | head -0")).toBe("kept\n");

  await host.ensureSlot({ slot: 2 });
  await host.assignSlot({ slot: 2, address: "10.201.0.6" });
  await host.prepareRootfs({ id: "fork", hostUsr: true, writableBytes: 2 ** 26, fromImage: "snapshots/box.img" });
  await host.runContainer({ ...request, id: "fork", rootfs: "fork", slot: 2, restore: { imagePath: "snapshots/box" } });
  expect(await execText(host, "fork", "cat /root/kept")).toBe("kept\n");
  await execText(host, "fork", "echo changed > /root/kept");
  expect(await execText(host, "box", "cat /root/kept")).toBe("kept\n");
});

test("checkpointContainer: an image that was cut short is snapshot-unusable", async () => {
  const { host } = real;
  await host.prepareRootfs({ id: "cut", hostUsr: true, writableBytes: 2 ** 24 });
  const request = containerOf("cut", "runsc", ["/bin/sleep", "600"]);
  await host.runContainer(request);
  await host.checkpointContainer({ id: "cut", imagePath: "snapshots/cut", leaveRunning: true });
  expect(await host.containerState({ id: "cut" })).toMatchObject({ status: "running" });
  await expect(host.checkpointContainer({ id: "cut", imagePath: "snapshots/cut" })).rejects.toMatchObject({
    code: "already-exists",
  });
  await host.deleteContainer({ id: "cut" });
  real.runInside("truncate", "-s", "-1", `${real.nodeDir}/snapshots/cut/pages.img`);
  await expect(host.runContainer({ ...request, restore: { imagePath: "snapshots/cut" } })).rejects.toMatchObject({
    code: "snapshot-unusable",
  });
});

test("checkpointContainer: too little free space is no-space and leaves nothing", async () => {
  const { host } = real;
  await host.prepareRootfs({ id: "full", hostUsr: true, writableBytes: 2 ** 24 });
  await host.runContainer(containerOf("full", "runsc", ["/bin/sleep", "600"]));
  const request = { id: "full", imagePath: "snapshots/full", freeBytesMin: 2 ** 60 };
  await expect(host.checkpointContainer(request)).rejects.toMatchObject({ code: "no-space" });
  expect(await host.containerState({ id: "full" })).toMatchObject({ status: "running" });
});
