import { existsSync, readdirSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { nodes, type Pod } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RealEngine, until } from "../node/real-engine.ts";

let engine: RealEngine;

const mebibyte = 2 ** 20;
const python = "/usr/bin/python3";
const reserved = 700 * mebibyte;
const byDefault = 320 * mebibyte;

beforeAll(async () => {
  engine = await RealEngine.open(
    ...["--system-reserved-memory", `${reserved}`, "--default-pod-memory", `${byDefault}`],
    ...["--default-pod-disk", "96Mi", "--pod-max-pids", "600"],
  );
});

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

/** A pod of one container with limits. */
function limited(limits: Readonly<Record<string, string>>): Partial<Pod> {
  return { spec: { containers: [{ name: "main", resources: { limits } }] } };
}

/** Sandboxes that wait for a pod. */
async function oneWaits(): Promise<void> {
  const dir = path.join(engine.dataDir, "containers");
  const isReady = (id: string): boolean => {
    const files = readdirSync(path.join(dir, id));
    return (
      files.includes("waiting.name") &&
      readFileSync(path.join(dir, id, "record.json"), "utf8").includes('"running":true')
    );
  };
  await until(() => readdirSync(dir).some((id) => id.startsWith("ahead-") && isReady(id)));
  await new Promise((resolve) => setTimeout(resolve, 100));
}

/** What a pod's programs believe of their machine. */
async function seenBy(pod: string): Promise<Record<string, number>> {
  const script = [
    "import os,subprocess",
    "mem={l.split(':')[0]:int(l.split()[1])*1024 for l in open('/proc/meminfo')}",
    "root=os.statvfs('/')",
    "free=subprocess.run(['free','-b'],capture_output=True,text=True).stdout.split('\\n')[1].split()[1] if os.path.exists('/usr/bin/free') else mem['MemTotal']",
    "print(mem['MemTotal'],mem['MemAvailable'],free,os.sysconf('SC_PHYS_PAGES')*os.sysconf('SC_PAGE_SIZE'),subprocess.run(['nproc'],capture_output=True,text=True).stdout.strip(),os.cpu_count(),root.f_blocks*root.f_frsize)",
  ].join("\n");
  const { stdout, stderr } = await engine.run(pod, [python, "-c", script]);
  const numbers = stdout.trim().split(" ").map(Number);
  if (numbers.length !== 7) throw new Error(`${stdout}${stderr}`);
  const [total = 0, available = 0, free = 0, pages = 0, nproc = 0, cpus = 0, root = 0] = numbers;
  return { total, available, free, pages, nproc, cpus, root };
}

test("limits of the machine: all sandboxes together have what is not reserved, and the node offers no more", async () => {
  const left = os.totalmem() - reserved;
  const [bound] = ["memory/NAME/memory.limit_in_bytes", "NAME/memory.max"]
    .map((file) => path.join("/sys/fs/cgroup", file.replace("NAME", `agent-sandbox-${engine.instance}`)))
    .filter((file) => existsSync(file));
  expect(Number(readFileSync(bound ?? "", "utf8"))).toBe(left);
  const [node] = (await engine.client.list(nodes)).items;
  expect(node?.status?.allocatable?.["memory"]).toBe(String(left));
});

test("limits inside: a sandbox made ahead shows its pod's memory, processors and disk", async () => {
  await oneWaits();
  await engine.startPod("ahead", limited({ memory: "200Mi", cpu: "1" }));
  await engine.readyPod("ahead");
  const seen = await seenBy("ahead");
  expect(seen).toMatchObject({ total: 200 * mebibyte, free: 200 * mebibyte, pages: 200 * mebibyte });
  expect(seen["available"]).toBeLessThan(200 * mebibyte);
  expect(seen).toMatchObject({ nproc: 2, cpus: 2 });
  expect(seen["root"]).toBeLessThanOrEqual(96 * mebibyte);
});

test("limits inside: a sandbox of its own shows the same", async () => {
  // An init container makes a pod have a sandbox of its own.
  const first = { name: "first", image: "host", command: ["true"] };
  const { containers = [] } = limited({ memory: "300Mi", cpu: "500m" }).spec ?? {};
  await engine.startPod("own", { spec: { initContainers: [first], containers } });
  await engine.readyPod("own");
  const seen = await seenBy("own");
  expect(seen).toMatchObject({ total: 300 * mebibyte, free: 300 * mebibyte, pages: 300 * mebibyte, nproc: 2, cpus: 2 });
});

test("limits inside: a pod that names none has the default", async () => {
  await engine.startPod("plain");
  await engine.readyPod("plain");
  expect(await seenBy("plain")).toMatchObject({ total: byDefault, nproc: os.cpus().length });
});
