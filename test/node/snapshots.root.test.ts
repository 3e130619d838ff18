import { readdirSync } from "node:fs";
import path from "node:path";
import {
  ignore,
  type Pod,
  pods,
  restoreOf,
  type Sandbox,
  type SandboxSnapshot,
  sandboxes,
  sandboxSnapshots,
  sleepAnswerOf,
  snapshotState,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RealEngine, until } from "./real-engine.ts";

let engine: RealEngine;
beforeAll(async () => {
  engine = await RealEngine.open();
}, 180_000);
afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

/** Counts in memory and answers with what it has; what its hook sends makes it draw anew. */
const server = String.raw`
import http.server, json, os, random, signal, socket, threading, time
kept = open("/kept", "w+"); kept.write("still here"); kept.flush(); os.unlink("/kept")
scratch = open("/scratch/open", "a+"); scratch.write("scratch"); scratch.flush()
os.makedirs("/etc/agent-sandbox", exist_ok=True)
with open("/etc/agent-sandbox/after-restore", "w") as hook:
    hook.write(f"#!/bin/sh\nexec kill -USR1 {os.getpid()}\n")
os.chmod("/etc/agent-sandbox/after-restore", 0o755)
born = os.urandom(8).hex()
random.seed(7)
reseeded = random.Random(7)
signal.signal(signal.SIGUSR1, lambda *_: reseeded.seed(os.urandom(16)))
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
        token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
        body = json.dumps({
            "pid": os.getpid(), "born": born, "ticks": ticks, "kept": kept.read(), "scratch": scratch.read(),
            "name": socket.gethostname(), "file": open("/etc/hostname").read().strip(), "hosts": open("/etc/hosts").read(),
            "token": open(token).read() if os.path.exists(token) else "",
            "seeded": random.random(), "reseeded": reseeded.random(), "drawn": os.urandom(8).hex(),
        }).encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *words): pass
print("started", flush=True)
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
`;

interface Report {
  readonly pid: number;
  readonly born: string;
  readonly ticks: number;
  readonly kept: string;
  readonly scratch: string;
  readonly name: string;
  readonly file: string;
  readonly hosts: string;
  readonly token: string;
  readonly seeded: number;
  readonly reseeded: number;
  readonly drawn: string;
}

const keyOf = (name: string): { namespace: string; name: string } => ({ namespace: "default", name });

async function startSandbox(name: string, spec: Partial<Sandbox["spec"]> = {}): Promise<void> {
  const mounts = { volumeMounts: [{ name: "scratch", mountPath: "/scratch" }] };
  await engine.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, namespace: "default" },
    spec: {
      podTemplate: {
        spec: {
          automountServiceAccountToken: true,
          containers: [{ name: "main", image: "host", command: ["python3", "-c", server], ...mounts }],
          volumes: [{ name: "scratch", emptyDir: {} }],
        },
      },
      ...spec,
    },
  } as Sandbox);
}

async function readyPod(name: string): Promise<Pod> {
  await until(async () => (await engine.client.get(pods, keyOf(name)).catch(ignore("NotFound"))) !== undefined);
  return engine.readyPod(name);
}

async function ask(name: string): Promise<Report> {
  const program =
    "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000', timeout=10).read().decode(), end='')";
  let report: Report | undefined;
  await until(async () => {
    const { stdout } = await engine.run(name, ["python3", "-c", program]).catch(() => ({ stdout: "" }));
    report = stdout.startsWith("{") ? (JSON.parse(stdout) as Report) : undefined;
    return report !== undefined;
  });
  if (report === undefined) throw new Error("bug: no answer");
  return report;
}

/** Makes a snapshot and resolves when it has come to its end, whatever that is. */
async function snapshot(name: string, spec: SandboxSnapshot["spec"]): Promise<SandboxSnapshot> {
  await engine.client.create(sandboxSnapshots, {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: { name, namespace: "default" },
    spec,
  } as SandboxSnapshot);
  return endOf(name);
}

async function endOf(name: string): Promise<SandboxSnapshot> {
  let found: SandboxSnapshot | undefined;
  await until(async () => {
    found = await engine.client.get(sandboxSnapshots, keyOf(name)).catch(() => undefined);
    return found !== undefined && ["ready", "failed"].includes(snapshotState(found).state);
  });
  if (found === undefined) throw new Error("bug: no snapshot");
  return found;
}

async function setMode(name: string, operatingMode: "Running" | "Suspended"): Promise<void> {
  await engine.client.patch(sandboxes, keyOf(name), { type: "merge", body: { spec: { operatingMode } } });
}

/** Deletes all there is and resolves when the node has nothing of it any more. */
async function expectNothingLeft(): Promise<void> {
  for (const resource of [sandboxes, sandboxSnapshots] as const) {
    const { items } = await engine.client.list<Sandbox | SandboxSnapshot>(resource, { namespace: "default" });
    for (const { metadata } of items)
      await engine.client.delete<Sandbox | SandboxSnapshot>(resource, keyOf(metadata.name)).catch(ignore("NotFound"));
  }
  const left = (): string[] => [
    ...["snapshots", "writable/kept", "volumes"].flatMap((dir) => readdirSync(path.join(engine.hostDir, dir))),
    ...readdirSync(path.join(engine.hostDir, "empty")).filter((entry) => !entry.startsWith("ahead-")),
    ...["snapshots", "sandboxes"].flatMap((dir) => readdirSync(path.join(engine.nodeDir, dir))),
  ];
  await until(() => left().length === 0).catch(() => undefined);
  expect(left()).toEqual([]);
}

test("snapshots: two children of a running server go on from its memory under names, addresses and tokens of their own, and so does the server", async () => {
  await startSandbox("source");
  const source = await readyPod("source");
  const before = await ask("source");
  const taken = await snapshot("point", { sandboxName: "source" });
  expect(snapshotState(taken)).toMatchObject({ state: "ready" });
  expect(taken.status).toMatchObject({ copy: "Copy", runtimeVersion: expect.any(String), takenAt: expect.any(String) });
  expect(taken.status?.memorySizeBytes).toBeGreaterThan(1 << 20);
  expect(taken.status?.sizeBytes).toBeGreaterThan(taken.status?.memorySizeBytes ?? 0);
  expect(taken.status?.standstillMs).toBeGreaterThan(0);
  await Promise.all(
    ["left", "right"].map((name) => startSandbox(name, { restoreFrom: { snapshotName: "point" } } as never)),
  );
  const children = await Promise.all(["left", "right"].map(readyPod));
  expect(new Set([source, ...children].map(({ status }) => status?.podIP)).size).toBe(3);
  const [after, left, right] = [await ask("source"), await ask("left"), await ask("right")];
  expect(after.ticks).toBeGreaterThan(before.ticks);
  for (const [name, child] of Object.entries({ left, right })) {
    expect(child).toMatchObject({
      pid: before.pid,
      born: before.born,
      kept: "still here",
      scratch: "scratch",
      name,
      file: name,
    });
    expect(child.ticks).toBeGreaterThan(before.ticks);
    expect(child.hosts).toContain(children.find(({ metadata }) => metadata.name === name)?.status?.podIP);
    expect(child.token).not.toBe(after.token);
  }
  expect(left.token).not.toBe(right.token);
  // What was seeded before the snapshot draws the same numbers, unless the hook has it drawn anew.
  expect(left.seeded).toBe(right.seeded);
  expect(left.reseeded).not.toBe(right.reseeded);
  expect(left.drawn).not.toBe(right.drawn);
  for (const pod of children) await engine.podWhere(pod.metadata.name, (one) => restoreOf(one)?.state === "restored");
  await until(async () => {
    const child = await engine.client.get(sandboxes, keyOf("left"));
    return child.status?.restoredFrom?.startedAt !== undefined;
  });
  // A child is a Sandbox like every other: its own snapshot names where it is from.
  expect((await snapshot("second", { sandboxName: "left" })).status?.parent?.name).toBe("point");
  await expectNothingLeft();
}, 180_000);

test("snapshots: one of a frozen, a hibernated and a stopped Sandbox leaves it as it was, and starts another", async () => {
  for (const type of ["Freeze", "Hibernate", "Stop"] as const) {
    const [name, child] = [`was-${type.toLowerCase()}`, `of-${type.toLowerCase()}`];
    await startSandbox(name, { suspensionStrategy: { type } } as never);
    await readyPod(name);
    const before = await ask(name);
    await engine.sh(name, "echo written > /file; sync");
    await setMode(name, "Suspended");
    const isAsleep = async (): Promise<boolean> => {
      const pod = await engine.client.get(pods, keyOf(name)).catch(ignore("NotFound"));
      return type === "Freeze" ? pod !== undefined && sleepAnswerOf(pod)?.reason === "Frozen" : pod === undefined;
    };
    await until(isAsleep);
    const taken = await snapshot(`snap-${name}`, { sandboxName: name });
    expect(snapshotState(taken)).toMatchObject({ state: "ready" });
    expect(taken.status?.memorySizeBytes !== undefined).toBe(type !== "Stop");
    await until(isAsleep);
    await startSandbox(child, { restoreFrom: { snapshotName: `snap-${name}` } } as never);
    await readyPod(child);
    const report = await ask(child);
    expect(report.name).toBe(child);
    expect(report.born === before.born).toBe(type !== "Stop");
    expect((await engine.sh(child, "cat /file")).stdout).toBe("written\n");
    await setMode(name, "Running");
    await readyPod(name);
    expect((await ask(name)).born === before.born).toBe(type !== "Stop");
  }
  await expectNothingLeft();
}, 300_000);

test("snapshots: the volume of a claim is copied with the memory that has its files open, and each goes on with its own", async () => {
  const resources = { requests: { storage: "64Mi" } };
  const claims = [{ metadata: { name: "scratch" }, spec: { accessModes: ["ReadWriteOnce"], resources } }];
  const containers = [
    {
      name: "main",
      image: "host",
      command: ["python3", "-c", server],
      volumeMounts: [{ name: "scratch", mountPath: "/scratch" }],
    },
  ];
  const spec = { podTemplate: { spec: { containers } }, volumeClaimTemplates: claims };
  await startSandbox("owner", spec as never);
  await readyPod("owner");
  const before = await ask("owner");
  for (const [index, memory] of [true, false].entries()) {
    const [point, child] = [`point-${index}`, `heir-${index}`];
    await engine.sh("owner", `echo ${index} > /scratch/file`);
    expect(snapshotState(await snapshot(point, { sandboxName: "owner", memory }))).toMatchObject({ state: "ready" });
    await engine.sh("owner", "echo later > /scratch/file");
    await startSandbox(child, { ...spec, restoreFrom: { snapshotName: point } } as never);
    await readyPod(child);
    const report = await ask(child);
    expect(report).toMatchObject({ name: child, scratch: memory ? "scratch" : "scratchscratch" });
    expect(report.born === before.born).toBe(memory);
    expect((await engine.sh(child, "cat /scratch/file")).stdout).toBe(`${index}\n`);
    expect((await engine.sh("owner", "cat /scratch/file")).stdout).toBe("later\n");
  }
  // Without a pod that names it the node may not read the claim.
  await setMode("owner", "Suspended");
  await until(async () => (await engine.client.get(pods, keyOf("owner")).catch(ignore("NotFound"))) === undefined);
  expect(snapshotState(await snapshot("stopped", { sandboxName: "owner" }))).toMatchObject({ state: "ready" });
  await startSandbox("late-heir", { ...spec, restoreFrom: { snapshotName: "stopped" } } as never);
  await readyPod("late-heir");
  expect((await engine.sh("late-heir", "cat /scratch/file")).stdout).toBe("later\n");
  await expectNothingLeft();
}, 180_000);

test("snapshots: what cannot be taken fails with the reason, and one without memory has the files alone", async () => {
  await startSandbox("plain");
  await readyPod("plain");
  await engine.sh("plain", "echo written > /file");
  const files = await snapshot("files", { sandboxName: "plain", memory: false });
  expect(files.status?.memorySizeBytes).toBeUndefined();
  await startSandbox("copy", { restoreFrom: { snapshotName: "files" } } as never);
  expect(restoreOf(await readyPod("copy"))).toBeUndefined();
  expect((await engine.sh("copy", "cat /file")).stdout).toBe("written\n");
  await setMode("plain", "Suspended");
  await until(async () => (await engine.client.get(pods, keyOf("plain")).catch(ignore("NotFound"))) === undefined);
  const refused = await snapshot("wants", { sandboxName: "plain", memory: true });
  expect(snapshotState(refused)).toMatchObject({ state: "failed", message: expect.stringContaining("has no memory") });
  await expectNothingLeft();
}, 180_000);
