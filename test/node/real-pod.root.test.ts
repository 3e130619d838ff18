import { copyFile, mkdir, readFile } from "node:fs/promises";
import path from "node:path";
import { pods } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeArchive, makeImage } from "../../packages/server/src/node/images/testing/test-image.ts";
import { defaultCapabilities } from "../../packages/server/src/node/pods/container-process.ts";
import { CommandRunner } from "../../packages/server/src/node/streams/command-runner.ts";
import { readSetup } from "../../scripts/checkout.ts";
import { RealHost } from "../host/real-host.ts";
import { postArchive } from "./admin-client.ts";
import { isReady, NodeWorld, sandboxdName } from "./node-world.ts";
import { readPodLog } from "./pod-log.ts";

let real: RealHost;
let world: NodeWorld;

beforeAll(async () => {
  real = await RealHost.open();
  await mkdir(path.join(real.dataDir, "bin"), { recursive: true });
  const sandboxd = process.env["AGENT_SANDBOX_TEST_SANDBOXD"] ?? readSetup().sandboxd;
  await copyFile(sandboxd, path.join(real.dataDir, "bin", sandboxdName));
  world = await NodeWorld.start({ hostDir: real.hostDir }, { host: real.host, dataDir: real.nodeDir });
});

afterAll(async () => {
  await world.agent?.stop();
  await real[Symbol.asyncDispose]();
  await world[Symbol.asyncDispose]();
});

test("node on gVisor: a pod with the built-in image prints gVisor's kernel into its log and succeeds", async () => {
  await world.createPod("uname", {
    restartPolicy: "Never",
    containers: [
      {
        name: "main",
        image: "host",
        command: ["sh", "-c", "uname -a; echo $GREETING; exit 4"],
        env: [{ name: "GREETING", value: "hello $(POD)" }],
      },
    ],
  });
  const done = await world.podWhere("uname", ({ status }) => status?.phase === "Failed");
  expect(done.status?.containerStatuses?.[0]?.state?.terminated).toMatchObject({ exitCode: 4, reason: "Error" });
  const log = await readPodLog(world, done, "main", { attempt: 0, root: real.root });
  expect(log).toContain("Linux");
  expect(log).toContain("hello $(POD)");
});

test("node on gVisor: a running pod has its names and variables, runs commands, and goes within its grace", async () => {
  await world.createPod("live", {
    hostname: "box",
    containers: [
      {
        name: "main",
        image: "host",
        command: ["sleep", "infinity"],
        env: [{ name: "WHO", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } }],
      },
    ],
  });
  const live = await world.podWhere("live", isReady);
  const containerId = live.status?.containerStatuses?.[0]?.containerID?.replace("agent-sandbox://", "") ?? "";
  const process = {
    argv: [],
    env: ["PATH=/usr/bin:/bin"],
    cwd: "/",
    uid: 0,
    gid: 0,
    capabilities: [...defaultCapabilities],
    noNewPrivileges: true,
  };
  const runner = new CommandRunner(real.host);
  const script = "hostname; cat /etc/resolv.conf; tr '\\0' '\\n' < /proc/1/environ";
  const { exitCode, output } = await runner.capture(
    { hostId: containerId, process },
    ["sh", "-c", script],
    new AbortController().signal,
  );
  expect(exitCode).toBe(0);
  expect(output).toContain("box\n");
  expect(output).toContain("nameserver 10.200.0.1");
  expect(output).toContain("search default.svc.cluster.local svc.cluster.local cluster.local");
  expect(output).toContain("WHO=live");
  await world.client.delete(pods, { namespace: "default", name: "live" }, { gracePeriodSeconds: 10 });
  await world.podGone("live");
  expect((await real.host.listContainers()).filter(({ id }) => id === containerId)).toEqual([]);
});

test("node on gVisor: init containers and two containers share one sandbox", async () => {
  await world.createPod("several", {
    volumes: [{ name: "shared", emptyDir: {} }],
    initContainers: [
      {
        name: "prepare",
        image: "host",
        command: ["sh", "-c", "echo made > /shared/file"],
        volumeMounts: [{ name: "shared", mountPath: "/shared" }],
      },
    ],
    containers: [
      {
        name: "one",
        image: "host",
        command: ["sh", "-c", "cat /shared/file; sleep infinity"],
        volumeMounts: [{ name: "shared", mountPath: "/shared" }],
      },
      { name: "two", image: "host", command: ["sleep", "infinity"] },
    ],
  });
  const ready = await world.podWhere("several", isReady);
  expect(ready.status?.containerStatuses).toHaveLength(2);
  const sandboxes = new Set(
    (await real.host.listContainers()).filter(({ status }) => status === "running").map(({ sandboxId }) => sandboxId),
  );
  expect(sandboxes.size).toBe(1);
  await world.client.delete(pods, { namespace: "default", name: "several" }, { gracePeriodSeconds: 1 });
  await world.podGone("several");
});

test("node on gVisor: an agent that comes back finds its pod running and not restarted", async () => {
  await world.createPod("kept", { containers: [{ name: "main", image: "host", command: ["sleep", "infinity"] }] });
  const before = await world.podWhere("kept", isReady);
  await world.agent?.stop();
  await world.startAgent();
  await world.agent?.idle();
  const after = await world.getPod("kept");
  expect(after.status?.containerStatuses?.[0]).toEqual(before.status?.containerStatuses?.[0]);
  await world.client.delete(pods, { namespace: "default", name: "kept" }, { gracePeriodSeconds: 0 });
  await world.podGone("kept");
});

test("node on gVisor: a pod runs as the user of an image that was loaded from an archive", async () => {
  const program = await readFile(path.join(real.dataDir, "bin", sandboxdName));
  const config = { Entrypoint: ["/app/sandboxd"], Cmd: ["--version"], User: "worker", WorkingDir: "/app" };
  const passwd = "root:x:0:0:root:/root:/bin/sh\nworker:x:1234:1234::/app:/bin/sh\n";
  const image = await makeImage([{ "etc/passwd": passwd, "app/readme": "x" }, { "app/sandboxd": program }], config);
  const loaded = await postArchive(
    path.join(real.nodeDir, "node.sock"),
    await makeArchive("example.test/app:1", image),
  );
  expect(loaded).toMatchObject({ images: [{ name: "example.test/app:1" }] });
  await world.createPod("oci", { restartPolicy: "Never", containers: [{ name: "main", image: "example.test/app:1" }] });
  const done = await world.podWhere("oci", ({ status }) => status?.phase === "Succeeded" || status?.phase === "Failed");
  expect(done.status?.containerStatuses?.[0]?.state?.terminated).toMatchObject({ exitCode: 0 });
  expect(await readPodLog(world, done, "main", { attempt: 0, root: real.root })).toContain("version");
  expect(done.status?.containerStatuses?.[0]?.imageID).toBe(`example.test/app@${image.manifestDigest}`);
});
