import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import {
  annotationKeys,
  findCondition,
  ignore,
  type Pod,
  pods,
  restoreOf,
  type Sandbox,
  sandboxes,
  sleepAnswerOf,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { spoilOnceOpened } from "../host/spoiled-pages.ts";
import { killRole, roleProcess } from "./engine-processes.ts";
import { takenSandboxes } from "./holdings.ts";
import { isReady, RealEngine, until } from "./real-engine.ts";

let engine: RealEngine;
beforeAll(async () => {
  engine = await RealEngine.open();
}, 180_000);
afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

const counting = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done";

async function startSandbox(name: string, rung: "Freeze" | "Hibernate", script = counting): Promise<void> {
  await engine.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, namespace: "default" },
    spec: {
      suspensionStrategy: { type: rung },
      podTemplate: { spec: { containers: [{ name: "main", image: "host", command: ["sh", "-c", script] }] } },
    },
  } as Sandbox);
  await readyPod(name);
}

/** Resolves when the Sandbox's pod is there and Ready. */
async function readyPod(name: string): Promise<Pod> {
  const key = { namespace: "default", name };
  await until(async () => (await engine.client.get(pods, key).catch(ignore("NotFound"))) !== undefined);
  return engine.readyPod(name);
}

async function setMode(name: string, operatingMode: "Running" | "Suspended"): Promise<void> {
  const patch = { type: "merge", body: { spec: { operatingMode } } } as const;
  await engine.client.patch(sandboxes, { namespace: "default", name }, patch);
}

const hasAnswer =
  (reason: string) =>
  (pod: Pod): boolean =>
    sleepAnswerOf(pod)?.reason === reason;

async function freeze(name: string): Promise<Pod> {
  await setMode(name, "Suspended");
  return engine.podWhere(name, hasAnswer("Frozen"));
}

async function countersOf(name: string): Promise<number[]> {
  let text = "";
  await until(async () => {
    const { status, stdout } = await engine.kubectlWith("", "logs", name);
    text = stdout;
    return status === 0;
  });
  return text.trim().split("\n").filter(Boolean).map(Number);
}

/** Everything that was counted is there, and it counts on. */
async function expectCounting(name: string, atLeast: number): Promise<void> {
  await until(async () => (await countersOf(name)).length > atLeast + 3);
  const all = await countersOf(name);
  expect(all).toEqual(all.map((_, index) => index + 1));
}

async function expectStill(name: string): Promise<number> {
  const before = (await countersOf(name)).length;
  await sleep(500);
  expect((await countersOf(name)).length).toBe(before);
  return before;
}

test("sleep: a counter that is frozen does not advance, and loses nothing when it goes on, twice", async () => {
  await startSandbox("count", "Freeze");
  for (let cycle = 0; cycle < 2; cycle += 1) {
    const frozen = await freeze("count");
    expect(findCondition(frozen.status?.conditions, "Ready")).toMatchObject({ status: "False", reason: "Frozen" });
    const before = await expectStill("count");
    await setMode("count", "Running");
    const awake = await engine.podWhere("count", isReady);
    expect(awake.status?.containerStatuses).toMatchObject([{ ready: true, restartCount: 0 }]);
    expect(awake.metadata.uid).toBe(frozen.metadata.uid);
    await expectCounting("count", before);
  }
  await engine.client.delete(sandboxes, { namespace: "default", name: "count" });
});

test.each(["node", "sandbox-host", "supervisor"] as const)(
  "sleep: kill -9 of %s leaves a frozen sandbox frozen, and it wakes after that",
  async (role) => {
    const name = `kill-${role}`;
    await startSandbox(name, "Freeze");
    await freeze(name);
    await killRole(engine, role);
    const before = await expectStill(name);
    await setMode(name, "Running");
    await engine.podWhere(name, isReady);
    await expectCounting(name, before);
    await engine.client.delete(sandboxes, { namespace: "default", name });
  },
  120_000,
);

test("sleep: a frozen sandbox that is deleted goes at once and leaves nothing", async () => {
  const name = "goes";
  const key = { namespace: "default", name };
  await startSandbox(name, "Freeze");
  await freeze(name);
  const startMs = performance.now();
  await engine.client.delete(sandboxes, { namespace: "default", name });
  await until(async () => (await engine.client.get(pods, key).catch(ignore("NotFound"))) === undefined);
  // Far less than the grace period of half a minute that a sandbox which runs would have.
  expect(performance.now() - startMs).toBeLessThan(10_000);
  await until(() => takenSandboxes(engine).length === 0);
  const groups = readdirSync(`/sys/fs/cgroup/freezer/agent-sandbox-${engine.instance}`, { withFileTypes: true });
  const states = groups
    .filter((entry) => entry.isDirectory())
    .map(({ name: id, parentPath }) => path.join(parentPath, id));
  for (const group of states) expect(readFileSync(path.join(group, "freezer.state"), "utf8")).toBe("THAWED\n");
});

/** Prints a line when it starts, counts in memory, and answers with what it has: a file that was deleted while open, a directory of the pod, the layer. */
const server = String.raw`
import http.server, os, threading, time
kept = open("/kept", "w+"); kept.write("still here"); kept.flush(); os.unlink("/kept")
scratch = open("/scratch/open", "a+"); scratch.write("scratch"); scratch.flush()
ticks = 0
def count():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.02)
threading.Thread(target=count, daemon=True).start()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        kept.seek(0); scratch.seek(0)
        body = f"{os.getpid()} {ticks} {kept.read()} {scratch.read()}".encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *words): pass
print("started", flush=True)
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
`;

async function askServer(name: string): Promise<{ readonly ticks: number; readonly rest: string }> {
  const ask =
    "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000', timeout=10).read().decode(), end='')";
  let words: string[] = [];
  await until(async () => {
    const { stdout } = await engine.run(name, ["python3", "-c", ask]).catch(() => ({ stdout: "" }));
    words = stdout.split(" ");
    return words.length > 3;
  });
  const [pid, ticks, ...rest] = words;
  return { ticks: Number(ticks), rest: [pid, ...rest].join(" ") };
}

test("sleep: a server with memory, a deleted file and an emptyDir goes on after two hibernations", async () => {
  const name = "server";
  const container = { name: "main", image: "host", command: ["python3", "-c", server] };
  await engine.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, namespace: "default" },
    spec: {
      suspensionStrategy: { type: "Hibernate" },
      podTemplate: {
        spec: {
          containers: [{ ...container, volumeMounts: [{ name: "scratch", mountPath: "/scratch" }] }],
          volumes: [{ name: "scratch", emptyDir: {} }],
        },
      },
    },
  } as Sandbox);
  await readyPod(name);
  let before = await askServer(name);
  expect(before.rest).toContain("still here scratch");
  for (let cycle = 0; cycle < 2; cycle += 1) {
    await setMode(name, "Suspended");
    const key = { namespace: "default", name };
    await until(async () => (await engine.client.get(pods, key).catch(ignore("NotFound"))) === undefined);
    expect((await engine.client.get(sandboxes, key)).status?.sleep).toMatchObject({ rung: "Hibernate" });
    await setMode(name, "Running");
    const pod = await readyPod(name);
    expect(pod.status?.containerStatuses).toMatchObject([{ restartCount: 0 }]);
    const after = await askServer(name);
    expect(after.rest).toBe(before.rest);
    expect(after.ticks).toBeGreaterThan(before.ticks);
    await engine.podWhere(name, (one) => restoreOf(one)?.state === "restored");
    expect(await engine.kubectl("logs", name)).toBe("started\n");
    before = await askServer(name);
  }
  await engine.client.delete(sandboxes, { namespace: "default", name });
}, 180_000);

test("sleep: memory of which a page cannot be read after its program went on is not used again, and its user starts it cold", async () => {
  const name = "spoiled";
  const key = { namespace: "default", name };
  // Two hundred MiB are compared for longer than it takes to see the file opened.
  const holding = "held = b'x' * (200 << 20); print('started', flush=True); import time; time.sleep(86400)";
  await startSandbox(name, "Hibernate", `exec python3 -c "${holding}"`);
  await until(async () => (await engine.kubectl("logs", name)) === "started\n");
  const isGone = async (): Promise<boolean> =>
    (await engine.client.get(pods, key).catch(ignore("NotFound"))) === undefined;
  await setMode(name, "Suspended");
  await until(isGone);
  const [saved = ""] = readdirSync(path.join(engine.hostDir, "snapshots"));
  const pages = path.join(engine.hostDir, "snapshots", saved, "pages.img");
  const helperPid = roleProcess(engine, "sandbox-host") ?? 0;
  const spoiling = spoilOnceOpened({ helperPid, pages, work: engine.hostDir });
  await setMode(name, "Running");
  const putBack = await spoiling;
  const failure = async (): Promise<string> => {
    const isFailed = ({ status }: Sandbox): boolean =>
      findCondition(status?.conditions, "Ready")?.reason === "RestoreFailed";
    const { status } = await engine.objectWhere(sandboxes, key, isFailed);
    return findCondition(status?.conditions, "Ready")?.message ?? "";
  };
  expect(await failure()).toMatch(/could not be read after its guest had gone on.*resume --cold/);
  putBack();
  await until(isGone);
  await sleep(1000);
  expect(await isGone()).toBe(true);
  // The next attempt is refused, and the condition says why.
  await setMode(name, "Suspended");
  await engine.objectWhere(sandboxes, key, ({ status }) => {
    return findCondition(status?.conditions, "Suspended")?.status === "True";
  });
  await setMode(name, "Running");
  await until(async () => /did not end.*resume --cold/.test(await failure()));
  const { status } = await engine.client.get(sandboxes, key);
  const annotations = { [annotationKeys.coldStart]: status?.sleep?.id ?? "" };
  await engine.client.patch(sandboxes, key, { type: "merge", body: { metadata: { annotations } } });
  await readyPod(name);
  expect(readdirSync(path.join(engine.hostDir, "snapshots"))).toEqual([]);
  await engine.client.delete(sandboxes, key);
}, 120_000);
