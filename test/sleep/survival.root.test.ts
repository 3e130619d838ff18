import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { restoreOf } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readDevDir } from "../../scripts/checkout.ts";
import { gzipLayer, tarEntry, tarOf } from "../host/layer-blob.ts";
import { until } from "../node/real-engine.ts";
import { EngineRouter } from "../router/engine-router.ts";
import { ArchiveDirectory } from "./archive-directory.ts";
import { Box, type DeepRung, deepRungs } from "./box.ts";
import {
  Counter,
  NodeServer,
  NpmInstall,
  PostgresWriter,
  PythonRepl,
  ShellJobs,
  SqliteWriter,
  type Workload,
} from "./workloads.ts";

/** Times that each sandbox sleeps and wakes; `npm test -- --full` runs more. */
const cycles = process.env["AGENT_SANDBOX_TEST_FULL"] === "1" ? 10 : 2;
const packages = Array.from({ length: 30 }, (_, index) => `part-${index}`);

/** What happens to a sandbox between two looks at its programs. Into the archive it goes out of hibernation. */
const absences = [...deepRungs, "Archive"] as const;
type Absence = (typeof absences)[number];

let tools: string;
let store: ArchiveDirectory;
let world: EngineRouter;

beforeAll(async () => {
  tools = layOutTools();
  store = new ArchiveDirectory();
  world = await EngineRouter.open("--allow-host-path", tools, "--archive", store.path);
}, 180_000);
afterAll(async () => {
  await world?.[Symbol.asyncDispose]();
  rmSync(tools, { recursive: true, force: true });
  store?.[Symbol.dispose]();
});

/** Everything that the sandboxes run besides this machine's own programs, in one directory that they may read. */
function layOutTools(): string {
  const dir = mkdtempSync("/var/tmp/as-sleep-tools-");
  chmodSync(dir, 0o755);
  cpSync(process.execPath, path.join(dir, "node"), { dereference: true });
  cpSync(path.join(readDevDir("package-tools"), "node_modules/npm"), path.join(dir, "npm"), { recursive: true });
  cpSync(path.join(readDevDir("postgres"), "usr"), path.join(dir, "postgres/usr"), { recursive: true });
  cpSync(path.join(import.meta.dirname, "programs"), path.join(dir, "programs"), { recursive: true });
  mkdirSync(path.join(dir, "packages"));
  for (const name of packages) {
    const manifest = tarEntry({ name: "package/package.json", content: JSON.stringify({ name, version: "1.0.0" }) });
    const main = tarEntry({ name: "package/index.js", content: `module.exports = "${name}";\n` });
    writeFileSync(path.join(dir, "packages", `${name}.tgz`), gzipLayer(tarOf(manifest, main)).blob);
  }
  return dir;
}

/** Through the router, which wakes what sleeps. */
async function askByRouter({ name }: Box): Promise<string> {
  const { status, text } = await world.call(name, "/", { port: 8000 });
  if (status !== 200) throw new Error(`${status} ${text}`);
  return text;
}

const workloadsOf: Record<string, () => readonly Workload[]> = {
  tools: () => [
    new NodeServer(askByRouter),
    new Counter(),
    new PythonRepl(),
    new ShellJobs(),
    new NpmInstall(packages),
  ],
  data: () => [new Counter(), new SqliteWriter(), new PostgresWriter()],
};

const mounted = {
  containers: [
    {
      name: "main",
      image: "host",
      command: ["sh", "-c", "mkdir /w && exec sleep infinity"],
      volumeMounts: [{ name: "tools", mountPath: "/tools", readOnly: true }],
    },
  ],
};

/** What must be the same after each absence. What comes out of the archive is another object. */
async function identityOf(box: Box, absence: Absence): Promise<object> {
  const [pod, object] = [await box.pod(), await box.object()];
  const [container] = pod?.status?.containerStatuses ?? [];
  return {
    hostname: await box.sh("hostname; hostname -i; cat /etc/hostname"),
    address: pod?.status?.podIP,
    fixed: object.status?.podIPs,
    restarts: container?.restartCount,
    ...(absence !== "Archive" && { uid: object.metadata.uid }),
  };
}

/** Ends with the sandbox awake, or with one that the next question wakes. */
async function beAbsent(box: Box, absence: Absence, cycle: number): Promise<void> {
  await box.sleep();
  if (absence === "Archive") {
    await box.leave();
    expect(await box.isThere()).toBe(false);
    // Any request brings it back, whatever it is answered.
    if (cycle % 2 === 0) await world.call(box.name, "/", { port: 8000 });
    else await box.recall();
    await box.ready();
  } else if (cycle % 2 === 1) {
    // The first question wakes it on even rounds: it comes through the router, or is a command.
    await box.wake();
  }
}

async function liveThrough(absence: Absence, box: Box, workloads: readonly Workload[]): Promise<void> {
  for (const workload of workloads) await workload.start(box);
  for (const workload of workloads) await workload.check(box);
  const before = await identityOf(box, absence);
  for (let cycle = 0; cycle < cycles; cycle += 1) {
    for (const workload of workloads) await workload.begin?.(box);
    await beAbsent(box, absence, cycle);
    for (const workload of workloads) await workload.check(box);
    expect(await identityOf(box, absence)).toEqual(before);
    if (absence !== "Freeze") {
      const pod = await box.engine.podWhere(box.name, (one) => restoreOf(one)?.state === "restored");
      expect(pod.status?.containerStatuses?.[0]?.restartCount).toBe(0);
    }
    await until(async () => (await box.archive()) === undefined);
  }
}

test.concurrent.for(absences.flatMap((absence) => Object.keys(workloadsOf).map((kind) => [absence, kind] as const)))(
  `deep sleep: %s: after each of ${cycles} cycles nothing of the programs in a sandbox with %s is lost`,
  { timeout: 600_000 },
  async ([absence, kind]: readonly [Absence, string]) => {
    const rung: DeepRung = absence === "Archive" ? "Hibernate" : absence;
    const box = new Box(world.engine, `${kind}-${absence.toLowerCase()}`, rung);
    await box.start({
      ...mounted,
      volumes: [{ name: "tools", hostPath: { path: tools } }],
    });
    await liveThrough(absence, box, workloadsOf[kind]?.() ?? []);
    await box.remove();
  },
);

/** Uses memory each time that it is asked to, and nothing in between. */
const seldom = `
import mmap, os, time
while True:
    while not os.path.exists("/go"): time.sleep(0.05)
    held = [mmap.mmap(-1, 1 << 20) for _ in range(200)]
    del held
    os.unlink("/go")
`;

test.concurrent("deep sleep: a program that has done nothing over several freezes goes on, and so do commands beside it", async () => {
  const box = new Box(world.engine, "seldom", "Freeze");
  await box.start({ containers: [{ name: "main", image: "host", command: ["python3", "-c", seldom] }] });
  for (let round = 0; round < 2 * cycles; round += 1) {
    for (let nap = 0; nap < 3; nap += 1) {
      await box.sleep();
      await box.wake();
    }
    await box.sh("touch /go; for i in $(seq 100); do test -e /go || exit 0; sleep 0.1; done; exit 1");
  }
  expect((await box.pod())?.status?.containerStatuses).toMatchObject([{ restartCount: 0 }]);
  await box.remove();
});
