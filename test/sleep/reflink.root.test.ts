import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statfsSync } from "node:fs";
import path from "node:path";
import { type Sandbox, type SandboxSnapshot, sandboxes, sandboxSnapshots, snapshotState } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readDevDir } from "../../scripts/checkout.ts";
import { RealEngine, until } from "../node/real-engine.ts";
import { Box } from "./box.ts";
import { memoryOf, rememberingPod } from "./memory.ts";

const mib = 1024 * 1024;
const namespace = "default";

let work: string;
let disk: string;
let engine: RealEngine;

/** A file with XFS in it, mounted: its blocks can belong to several files. */
function mountXfs(): void {
  work = mkdtempSync("/var/tmp/as-xfs-");
  // The engine's unprivileged processes pass through here.
  chmodSync(work, 0o711);
  disk = path.join(work, "disk");
  const [image, tools] = [path.join(work, "image"), readDevDir("xfs")];
  const libraries = ["usr/lib", "lib"].flatMap((dir) =>
    ["x86_64-linux-gnu", "aarch64-linux-gnu"].map((triple) => path.join(tools, dir, triple)),
  );
  const env = { ...process.env, LD_LIBRARY_PATH: libraries.join(":") };
  execFileSync("truncate", ["-s", "32G", image]);
  execFileSync(path.join(tools, "sbin/mkfs.xfs"), ["-q", "-m", "reflink=1", image], { env });
  mkdirSync(disk);
  execFileSync("mount", ["-o", "loop", image, disk]);
}

beforeAll(async () => {
  mountXfs();
  engine = await RealEngine.openIn(disk);
}, 180_000);
afterAll(async () => {
  try {
    await engine?.[Symbol.asyncDispose]();
  } finally {
    execFileSync("umount", [disk]);
    rmSync(work, { recursive: true });
  }
}, 120_000);

const usedBytes = (): number => {
  const { blocks, bfree, bsize } = statfsSync(disk);
  return (blocks - bfree) * bsize;
};

test("reflink: on XFS a snapshot and its children share the blocks of the files", async () => {
  const source = new Box(engine, "source", "Freeze");
  await source.start(rememberingPod);
  await source.sh("head -c 134217728 /dev/urandom > /large && sync && sha256sum /large > /sum");
  const before = usedBytes();
  await engine.client.create(sandboxSnapshots, {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: { name: "point", namespace },
    spec: { sandboxName: "source" },
  } as SandboxSnapshot);
  const taken = () => engine.client.get(sandboxSnapshots, { namespace, name: "point" });
  await until(async () => ["ready", "failed"].includes(snapshotState(await taken()).state), 60_000);
  expect((await taken()).status).toMatchObject({ copy: "Reflink" });
  await engine.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "child", namespace },
    spec: { podTemplate: { spec: rememberingPod }, restoreFrom: { snapshotName: "point" } },
  } as Sandbox);
  const child = new Box(engine, "child", "Freeze");
  await child.ready();
  expect((await memoryOf(child)).same).toBe((await memoryOf(source)).same);
  // Two copies of the file would be 256 MiB; the memory that was saved is some 30.
  expect(usedBytes() - before).toBeLessThan(120 * mib);
  await child.sh("echo other > /own && sha256sum -c /sum");
  expect(await source.sh("ls /own 2>/dev/null | wc -l && sha256sum -c /sum")).toBe("0\n/large: OK\n");
  await Promise.all([child.remove(), source.remove()]);
}, 120_000);
