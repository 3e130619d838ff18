import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { type EngineRecord, isAlive } from "@agent-sandbox/kube/engine-record";
import { afterAll, beforeAll, expect, test } from "vitest";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { programPath } from "../cluster/programs.ts";
import { processTable } from "../node/footprint.ts";
import { TestNamespace } from "../node/namespace.ts";

const command = path.join(rootDir, "agent-sandbox");
let place: TestNamespace;
let work = "";
let dataDir = "";
let kubeconfig = "";
let engine: ChildProcess;

beforeAll(async () => {
  place = await TestNamespace.open();
  work = mkdtempSync("/tmp/as-up-");
  dataDir = `${work}-data`;
  kubeconfig = path.join(work, "kubeconfig");
  engine = await upInForeground();
}, 120_000);

afterAll(async () => {
  place.must(command, "down", "--purge", "--data-dir", dataDir);
  rmSync(work, { recursive: true });
  await place[Symbol.asyncDispose]();
}, 120_000);

/** Starts the command as the documentation has it and resolves when kubectl lists the namespaces. */
async function upInForeground(): Promise<ChildProcess> {
  rmSync(kubeconfig, { force: true });
  const listen = ["--listen", "127.0.0.1:7443", "--kubeconfig-out", kubeconfig];
  const [program, args] = place.inside(command, "up", "--data-dir", dataDir, ...listen);
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"] });
  await until(() => child.exitCode !== null || (existsSync(kubeconfig) && kubectl("get", "ns").status === 0));
  // The engine is complete when it has left its record; the API answers before.
  await until(() => child.exitCode !== null || place.run(["cat", layoutOf(dataDir).recordFile]).status === 0);
  expect(child.exitCode).toBeNull();
  return child;
}

function kubectl(...args: readonly string[]) {
  return place.run([programPath("kubectl"), "--kubeconfig", kubeconfig, ...args]);
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20));
}

function recordOf(): EngineRecord {
  return JSON.parse(place.must("cat", layoutOf(dataDir).recordFile)) as EngineRecord;
}

test("up: a second one on the same data directory is refused and says who is there", async () => {
  const [program, args] = place.inside(command, "up", "--data-dir", dataDir, "--listen", "127.0.0.1:7444");
  const second = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
  const said = text(second.stderr as NonNullable<typeof second.stderr>);
  const [code] = await once(second, "close");
  expect(code).not.toBe(0);
  const { supervisor, apiUrl } = recordOf();
  const line = `an engine is running on ${dataDir} already (pid ${supervisor.pid}, API ${apiUrl}); stop it with agent-sandbox down`;
  expect(await said).toContain(line);
  // Nothing of the first was touched.
  expect(kubectl("get", "ns").status).toBe(0);
});

test("up: one in another root with the same data directory gets one sentence, and the first goes on", async () => {
  const { supervisor } = recordOf();
  const groups = `/sys/fs/cgroup{,/*}/agent-sandbox-${path.basename(layoutOf(dataDir).runDir)}`;
  // The first sandbox that is made ahead brings them.
  await until(() => globSync(groups).length > 0);
  await using other = await TestNamespace.open();
  const own = path.join(work, "other");
  mkdirSync(own);
  other.must("mount", "--bind", own, dataDir);
  const argv = [command, "up", "--detach", "--data-dir", dataDir, "--listen", "127.0.0.1:0"];
  const { status, stderr } = other.run(argv);
  expect(stderr).toBe(
    `error: the engine ended at once: an engine in another root or container has the same data directory ${dataDir}, and with it the same cgroups; give one of them another --data-dir; see ${dataDir}/logs/supervisor.log\n`,
  );
  expect(status).toBe(4);
  expect(isAlive(supervisor)).toBe(true);
  expect(globSync(groups)).not.toEqual([]);
});

test("up: after kill -9 of every process it comes back with everything", async () => {
  expect(kubectl("create", "configmap", "kept", "--from-literal=a=b").status).toBe(0);
  const before = kubectl("get", "configmap,serviceaccount,clusterrole", "-A", "-o", "name").stdout;
  const { supervisor } = recordOf();
  const parent = (pid: number): number =>
    Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  const roles = processTable().filter(
    ({ pid, command: line }) =>
      line.includes("agent-sandbox") && existsSync(`/proc/${pid}`) && parent(pid) === supervisor.pid,
  );
  const ended = once(engine, "exit");
  for (const { pid } of [{ pid: supervisor.pid }, ...roles]) process.kill(pid, "SIGKILL");
  await ended;
  await until(() => !isAlive(supervisor) && roles.every(({ pid }) => !existsSync(`/proc/${pid}`)));
  engine = await upInForeground();
  expect(kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}").stdout).toBe("b");
  expect(kubectl("get", "configmap,serviceaccount,clusterrole", "-A", "-o", "name").stdout).toBe(before);
});
