import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ContainerMount } from "../../packages/server/src/node/host/container.ts";
import { containerOf, processOf } from "./contract-case.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
beforeAll(async () => {
  real = await RealHost.open();
  const { host } = real;
  await mkdir(path.join(real.dataDir, "bin"), { recursive: true });
  await writeFile(path.join(real.dataDir, "bin/probe-0123456789ab"), "#!/bin/sh\n", { mode: 0o755 });
  await host.ensureEmptyDir({ id: "scratch", memory: false, sizeBytes: 2 ** 20 });
  const contentBase64 = Buffer.from("127.0.0.1 localhost\n").toString("base64");
  await host.writeFiles({ id: "etc", files: [{ path: "hosts", contentBase64, mode: 0o444 }] });
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});

/** What the node mounts into every container, and a volume of its owner's. */
const mounts: readonly ContainerMount[] = [
  { source: { kind: "program", name: "probe-0123456789ab" }, target: "/.agent-sandbox/probe", readOnly: true },
  { source: { kind: "empty-dir", id: "scratch" }, target: "/data/deep/scratch", readOnly: false },
  { source: { kind: "files", id: "etc", subPath: "hosts" }, target: "/etc/hosts", readOnly: true },
];

/** A name outside that no guest's link may lead to. */
const outside = `/tmp/as-hostile-${process.pid}`;

async function execText(id: string, script: string): Promise<string> {
  await using stream = await real.host.exec({ id, process: processOf("/usr/bin/sh", "-c", script), stdin: false });
  let text = "";
  for await (const chunk of stream.stdout) text += String(chunk);
  for await (const chunk of stream.stderr ?? []) text += String(chunk);
  return text;
}

async function wake(keepKey: string, life: number): Promise<string> {
  const id = `${keepKey}-${life}`;
  await real.host.prepareRootfs({ id, hostUsr: true, writableBytes: 64 * 2 ** 20, keepKey });
  const process = { ...processOf("/usr/bin/sleep", "600"), cwd: "/work/here" };
  await real.host.runContainer({ ...containerOf(id, "runsc", [], { mounts }), process });
  return id;
}

async function suspend(id: string): Promise<void> {
  await real.host.deleteContainer({ id });
  await real.host.releaseRootfs({ id });
}

test.for<[string, readonly string[]]>([
  [
    "links-that-lead-nowhere",
    [
      "rm -r /usr/local/bin; ln -s /nowhere /usr/local/bin",
      "rm -r /usr/local/lib; ln -s lib /usr/local/lib",
      "mv /.agent-sandbox /daemon.mine; ln -s /nowhere /.agent-sandbox",
      "mv /data /data.mine; ln -s data /data",
      "mv /work /work.mine; ln -s /nowhere /work",
    ],
  ],
  [
    "files-in-place-of-directories",
    [
      "rm -r /usr/local/share; echo mine > /usr/local/share",
      "mv /.agent-sandbox /daemon.mine; echo mine > /.agent-sandbox",
      "mv /data/deep /data/mine; echo mine > /data/deep",
      "mv /work/here /work/mine; echo mine > /work/here",
    ],
  ],
  [
    "links-out-of-the-sandbox",
    [
      `mv /.agent-sandbox /daemon.mine; ln -s ../../../../../../../..${outside} /.agent-sandbox`,
      `mv /data /data.mine; ln -s ${outside} /data`,
    ],
  ],
  [
    "links-into-what-the-runtime-mounts",
    ["mv /data /data.mine; ln -s /proc/self/cwd /data", "mv /work /work.mine; ln -s /proc /work"],
  ],
])("hostile guest: its links are in nobody's way but its own, it is woken again: %s", async ([keepKey, scripts]) => {
  const first = await wake(keepKey, 1);
  const said = await execText(first, `${scripts.join("; ")}; echo kept > /root/kept`);
  await suspend(first);
  const second = await wake(keepKey, 2);
  const look = "cat /root/kept /etc/hosts; touch /data/deep/scratch/x && test -x /.agent-sandbox/probe && echo whole";
  expect([said, await execText(second, look)]).toEqual(["", "kept\n127.0.0.1 localhost\nwhole\n"]);
  await suspend(second);
  expect(existsSync(outside)).toBe(false);
});
