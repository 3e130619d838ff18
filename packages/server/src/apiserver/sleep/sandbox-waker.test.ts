import { type Duplex, PassThrough } from "node:stream";
import { setImmediate as turn } from "node:timers/promises";
import { annotationKeys, formatTimestampMs, type JsonObject, labelKeys, nameHash } from "@agent-sandbox/api";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Authorizer } from "../auth/authorizer.ts";
import { objectAt, stringAt } from "../json/json.ts";
import { admin, podBody, sandboxBody, TestServer } from "../testing/test-server.ts";

const sandboxPath = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
const podPath = "/api/v1/namespaces/default/pods";
const auto = { autoSuspension: { inactivityTimeoutSeconds: 60 } };
const asKubectl = (command: string) => ({ headers: { "kubectl-command": `kubectl ${command}` } });

let server: TestServer;
let dialled: string[];
let mayExec: boolean;

beforeEach(async () => {
  dialled = [];
  mayExec = true;
  const authorizer: Authorizer = {
    authorize: (attributes) => {
      const isExec = attributes.kind === "resource" && attributes.subresource === "exec";
      return isExec && !mayExec ? { verdict: "deny", reason: "test" } : { verdict: "allow", reason: "test" };
    },
  };
  const connect = async (nodeName: string): Promise<Duplex> => {
    dialled.push(nodeName);
    return new PassThrough();
  };
  const nodeDialer = { request: () => Promise.reject(new Error("not asked")), connect };
  server = new TestServer({ nodeDialer, authorizer });
  await server.installOwnCrds();
});

afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const exec = (name: string, signal?: AbortSignal) =>
  server.api.openUpgrade({
    method: "POST",
    path: `${podPath}/${name}/exec?command=ls&stdout=true`,
    user: admin,
    ...(signal !== undefined && { signal }),
  });

async function ready(name: string, status: "True" | "False", reason: string): Promise<void> {
  const condition = { type: "Ready", status, reason, message: reason, lastTransitionTime: "2026-01-01T00:00:00Z" };
  const body = { status: { conditions: [condition] } };
  const answer = await server.call("PATCH", `${sandboxPath}/${name}/status`, {
    body,
    type: "application/merge-patch+json",
  });
  expect(answer.status).toBe(200);
}

/** A sandbox that sleeps: its controller has said so, and no Pod is left. */
async function sleeping(name: string, spec: JsonObject = auto): Promise<void> {
  expect((await server.call("POST", sandboxPath, { body: sandboxBody(name, spec) })).status).toBe(201);
  await ready(name, "False", "SandboxSuspended");
}

/** What controller and node do when a sandbox wakes. */
async function wakeUp(name: string): Promise<void> {
  const { body } = await server.call("GET", `${sandboxPath}/${name}`);
  const uid = stringAt(objectAt(body, "metadata"), "uid") ?? "";
  const owner = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name, uid, controller: true };
  const metadata = { ownerReferences: [owner], labels: { [labelKeys.sandboxNameHash]: nameHash(name) } };
  const made = await server.call("POST", podPath, { body: podBody(name, { nodeName: "n1" }, metadata) });
  expect(made.status).toBe(201);
  const podUID = stringAt(objectAt(made.body, "metadata"), "uid") ?? "";
  const named = await server.call("PATCH", `${sandboxPath}/${name}/status`, {
    body: { status: { podUID } },
    type: "application/merge-patch+json",
  });
  expect(named.status).toBe(200);
  await ready(name, "True", "DependenciesReady");
}

async function activity(name: string): Promise<string | undefined> {
  const { body } = await server.call("GET", `${sandboxPath}/${name}`);
  return stringAt(objectAt(objectAt(body, "metadata"), "annotations"), annotationKeys.lastActivityAt);
}

async function reported(name: string): Promise<void> {
  while ((await activity(name)) === undefined) await turn();
}

/** Enough turns for whatever would happen without waiting to have happened. */
async function calm(): Promise<void> {
  for (let round = 0; round < 20; round += 1) await turn();
}

test("wake on exec: fifty callers of a sleeping sandbox cause one write and enter the Pod that comes", async () => {
  await sleeping("a");
  const versions: string[] = [];
  using _writes = server.api.parts.storage.onWrite((definition, row) => {
    if (definition.resource === "sandboxes") versions.push(row.key);
  });
  const entering = Promise.all(Array.from({ length: 50 }, () => exec("a")));
  await reported("a");
  await calm();
  expect({ writes: versions.length, dialled }).toEqual({ writes: 1, dialled: [] });
  await wakeUp("a");
  await entering;
  expect(dialled).toEqual(Array.from({ length: 50 }, () => "n1"));
});

test("wake on exec: attach and port-forward wake as well", async () => {
  for (const stream of ["attach?stdout=true", "portforward?ports=80"]) {
    const name = stream.slice(0, 6);
    await sleeping(name);
    const opening = server.api.openUpgrade({ method: "POST", path: `${podPath}/${name}/${stream}`, user: admin });
    await reported(name);
    await wakeUp(name);
    await opening;
  }
  expect(dialled).toEqual(["n1", "n1"]);
});

test("wake on exec: kubectl's look before exec, cp, attach and port-forward waits for the Pod and shows the real one", async () => {
  for (const command of ["exec", "cp", "attach", "port-forward"]) {
    await sleeping(command);
    const looking = server.call("GET", `${podPath}/${command}`, asKubectl(command));
    await reported(command);
    await wakeUp(command);
    expect(stringAt(objectAt((await looking).body, "spec"), "nodeName")).toBe("n1");
  }
});

test("wake on exec: kubectl's look for the Pod of a Service waits for it", async () => {
  await sleeping("served");
  const selector = encodeURIComponent(`${labelKeys.sandboxNameHash}=${nameHash("served")}`);
  const looking = server.call("GET", `${podPath}?labelSelector=${selector}`, asKubectl("port-forward"));
  await reported("served");
  await wakeUp("served");
  expect((await looking).body["items"]).toHaveLength(1);
});

test("wake on exec: any other look wakes nobody", async () => {
  await sleeping("a");
  const looks = [{}, asKubectl("get"), asKubectl("logs"), asKubectl("describe")];
  for (const look of looks) expect((await server.call("GET", `${podPath}/a`, look)).status).toBe(404);
  expect((await server.call("GET", `${podPath}/a/log`)).status).toBe(404);
  expect((await server.call("GET", podPath, asKubectl("exec"))).status).toBe(200);
  expect(await activity("a")).toBeUndefined();
});

test("wake on exec: who may not exec does not wake, and learns nothing", async () => {
  await sleeping("a");
  mayExec = false;
  const user = { username: "eve", groups: [] };
  expect((await server.call("GET", `${podPath}/a`, { ...asKubectl("exec"), user })).status).toBe(404);
  await expect(exec("a")).rejects.toMatchObject({ status: 403 });
  expect(await activity("a")).toBeUndefined();
});

test("wake on exec: a sandbox that its owner holds stays asleep, and the caller is told how to resume it", async () => {
  await sleeping("held", { operatingMode: "Suspended" });
  await expect(exec("held")).rejects.toMatchObject({ status: 409, message: /agent-sandbox resume held/ });
  expect((await server.call("GET", `${podPath}/held`, asKubectl("exec"))).status).toBe(409);
  expect(await activity("held")).toBeUndefined();
});

test("wake on exec: a sandbox that does not come is 503 with its reason, after the limit", async () => {
  await sleeping("a");
  const entering = expect(exec("a")).rejects.toMatchObject({ status: 503, message: /SandboxSuspended/ });
  await reported("a");
  await calm();
  for (let second = 0; second < 61; second += 1) {
    server.clock.advance(1_000);
    await calm();
  }
  await entering;
});

test("wake on exec: a report that the suspension overtook is made again", async () => {
  await sleeping("a", { operatingMode: "Suspended", wakePolicy: "OnTraffic" });
  const entering = exec("a");
  await reported("a");
  const first = await activity("a");
  server.clock.advance(500);
  const stamp = {
    metadata: { annotations: { [annotationKeys.suspendedAt]: new Date(server.clock.nowMs()).toISOString() } },
  };
  await server.call("PATCH", `${sandboxPath}/a`, { body: stamp, type: "application/merge-patch+json" });
  await calm();
  expect(await activity("a")).toBe(first);
  server.clock.advance(1_000);
  while ((await activity("a")) === first) await turn();
  await wakeUp("a");
  await entering;
});

test("wake on exec: an awake sandbox is entered only after its activity is known", async () => {
  await sleeping("a");
  await wakeUp("a");
  server.clock.advance(30_000);
  await exec("a");
  expect(await activity("a")).toBe(formatTimestampMs(server.clock.nowMs()));
  const before = await activity("a");
  server.clock.advance(5_000);
  await exec("a");
  expect(await activity("a")).toBe(before);
});

test("wake on exec: a sandbox announced asleep under its running Pod is waited for", async () => {
  await sleeping("a");
  await wakeUp("a");
  await ready("a", "False", "SandboxSuspended");
  const entering = exec("a");
  await reported("a");
  await calm();
  expect(dialled).toEqual([]);
  await ready("a", "True", "DependenciesReady");
  await entering;
});

test("wake on exec: a frozen Pod is there all the time and is entered when its Sandbox is ready", async () => {
  await sleeping("a");
  await wakeUp("a");
  await ready("a", "False", "SandboxSuspended");
  const entering = exec("a");
  await reported("a");
  await ready("a", "False", "DependenciesNotReady");
  await calm();
  expect(dialled).toEqual([]);
  await ready("a", "True", "DependenciesReady");
  await entering;
});

test("wake on exec: Pods that belong to no Sandbox are entered as they are", async () => {
  await sleeping("a");
  await server.call("POST", podPath, { body: podBody("a", { nodeName: "n2" }) });
  await exec("a");
  expect(dialled).toEqual(["n2"]);
  expect(await activity("a")).toBeUndefined();
  await expect(exec("nobody")).rejects.toMatchObject({ status: 404 });
});

test("wake on exec: a caller who leaves waits no longer", async () => {
  await sleeping("a");
  const leaving = new AbortController();
  const entering = exec("a", leaving.signal);
  await reported("a");
  leaving.abort(new Error("gone"));
  await expect(entering).rejects.toThrow("gone");
});
