import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import {
  type ConfigMap,
  configMaps,
  type PersistentVolumeClaim,
  type Pod,
  persistentVolumeClaims,
  type Sandbox,
  type Secret,
  sandboxes,
  secrets,
  type TokenReview,
  tokenReviews,
} from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { killRole } from "./engine-processes.ts";
import { RealEngine, until } from "./real-engine.ts";

let engine: RealEngine;
let shared: string;

type PodSpec = NonNullable<Pod["spec"]>;
const mebibyte = 2 ** 20;
const namespace = "default";

beforeAll(async () => {
  shared = mkdtempSync("/tmp/as-shared-");
  writeFileSync(path.join(shared, "file"), "of the host", { mode: 0o644 });
  engine = await RealEngine.open("--allow-host-path", shared);
  const claim: PersistentVolumeClaim = {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name: "data", namespace },
    spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "32Mi" } } },
  };
  const settings: ConfigMap = {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "settings", namespace },
    data: { color: "red", size: "1" },
  };
  const secret: Secret = {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: "password", namespace },
    data: { word: Buffer.from("hush").toString("base64") },
  };
  await engine.client.create(persistentVolumeClaims, claim);
  await engine.client.create(configMaps, settings);
  await engine.client.create(secrets, secret);
  await Promise.all([startKeeper(), startReader()]);
  await Promise.all(["keeper", "reader"].map((name) => engine.readyPod(name)));
});

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
  rmSync(shared, { recursive: true, force: true });
});

/** A pod that keeps things: a claim, and two empty directories with limits. */
function startKeeper(): Promise<Pod> {
  return start("keeper", {
    volumes: [
      { name: "data", persistentVolumeClaim: { claimName: "data" } },
      { name: "empty", emptyDir: { sizeLimit: "8Mi" } },
      { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "4Mi" } },
    ],
    mounts: { data: "/data", empty: "/empty", memory: "/memory" },
  });
}

/** A pod that reads what the API has. */
function startReader(): Promise<Pod> {
  const token = { serviceAccountToken: { path: "token", audience: "vault", expirationSeconds: 600 } };
  const labels = { path: "labels", fieldRef: { fieldPath: "metadata.labels" } };
  const memory = { path: "memory", resourceFieldRef: { containerName: "main", resource: "limits.memory" } };
  return start(
    "reader",
    {
      volumes: [
        { name: "settings", configMap: { name: "settings", items: [{ key: "color", path: "deep/color" }] } },
        { name: "whole", configMap: { name: "settings" } },
        { name: "secret", secret: { secretName: "password", defaultMode: 0o400 } },
        { name: "projected", projected: { sources: [token, { configMap: { name: "settings" } }] } },
        { name: "downward", downwardAPI: { items: [labels, memory] } },
      ],
      mounts: { settings: "/settings", secret: "/secret", projected: "/projected", downward: "/downward" },
      more: [{ name: "whole", mountPath: "/etc/color", subPath: "color" }],
      limits: { memory: "256Mi" },
    },
    { tier: "gold" },
  );
}

interface Wanted {
  readonly volumes: NonNullable<PodSpec["volumes"]>;
  readonly mounts: Readonly<Record<string, string>>;
  readonly more?: PodSpec["containers"][number]["volumeMounts"];
  readonly limits?: Readonly<Record<string, string>>;
}

function start(name: string, wanted: Wanted, labels: Record<string, string> = {}): Promise<Pod> {
  const volumeMounts = Object.entries(wanted.mounts).map(([volume, mountPath]) => ({ name: volume, mountPath }));
  const container = {
    name: "main",
    image: "host",
    command: ["sleep", "infinity"],
    volumeMounts: [...volumeMounts, ...(wanted.more ?? [])],
    ...(wanted.limits !== undefined && { resources: { limits: wanted.limits } }),
  };
  const metadata = { name, namespace, labels };
  return engine.startPod(name, { metadata, spec: { volumes: wanted.volumes, containers: [container] } });
}

/** Fills a file until the file system is full; resolves with the error and how much went in. */
async function fill(pod: string, file: string, count: number): Promise<{ text: string; bytes: number }> {
  const { stdout } = await engine.sh(
    pod,
    `dd if=/dev/zero of=${file} bs=1M count=${count} 2>&1; stat -c %s ${file}; rm -f ${file}`,
  );
  return { text: stdout, bytes: Number(stdout.trim().split("\n").at(-1)) };
}

const noSpace = "No space left on device";

test("volumes claim: its size is a limit, and what was written outlives the pod", async () => {
  const full = await fill("keeper", "/data/big", 64);
  expect([full.text.includes(noSpace), full.bytes < 32 * mebibyte, full.bytes > 16 * mebibyte]).toEqual([
    true,
    true,
    true,
  ]);
  await engine.sh("keeper", "echo mine > /data/kept; mkdir -p /data/inner; echo deep > /data/inner/file; sync");
  await engine.removePod("keeper");
  await startKeeper();
  await engine.readyPod("keeper");
  expect((await engine.sh("keeper", "cat /data/kept")).stdout).toBe("mine\n");
  expect((await engine.sh("keeper", "ls /empty")).stdout).toBe("");
});

test("volumes claim: it grows at its pod's next start at the latest, and then says so", async () => {
  const key = { namespace, name: "data" };
  const body = { spec: { resources: { requests: { storage: "64Mi" } } } };
  await engine.client.patch(persistentVolumeClaims, key, { type: "merge", body });
  // Where the kernel may not enlarge a mounted file system, the claim says that it waits for a start.
  const isDone = ({ status }: PersistentVolumeClaim): boolean => status?.capacity?.["storage"] === "64Mi";
  const isPending = ({ status }: PersistentVolumeClaim): boolean =>
    status?.conditions?.some(({ type }) => type === "FileSystemResizePending") === true;
  const first = await engine.objectWhere(persistentVolumeClaims, key, (claim) => isDone(claim) || isPending(claim));
  if (isPending(first)) {
    await engine.removePod("keeper");
    await startKeeper();
    await engine.readyPod("keeper");
  }
  await engine.objectWhere(persistentVolumeClaims, key, (claim) => isDone(claim) && !isPending(claim));
  const more = await fill("keeper", "/data/big", 40);
  expect(more).toMatchObject({ bytes: 40 * mebibyte });
  expect((await engine.sh("keeper", "cat /data/kept")).stdout).toBe("mine\n");
});

test("volumes emptyDir: the limits of disk and memory hold, and what fits is written", async () => {
  for (const [file, limit] of [
    ["/empty/big", 8],
    ["/memory/big", 4],
  ] as const) {
    const full = await fill("keeper", file, 4 * limit);
    expect([file, full.text.includes(noSpace), full.bytes <= limit * mebibyte]).toEqual([file, true, true]);
    expect(await fill("keeper", file, limit / 4)).toMatchObject({ bytes: (limit / 4) * mebibyte });
  }
  const kinds = engine.place.must("sh", "-c", "grep /mnt/empty/ /proc/mounts | cut -d' ' -f3 | sort | uniq -c");
  expect(kinds).toMatch(/1 tmpfs/);
});

test("node figures: kubectl top shows who is busy, and Prometheus form shows traffic, layers and volumes", async () => {
  await engine.startPod("busy", { command: ["sh", "-c", "while :; do :; done"] });
  await engine.readyPod("busy");
  const cpuOf = async (pod: string): Promise<number> =>
    Number(/ (\d+)m /.exec(await engine.kubectl("top", "pod", pod, "--no-headers"))?.[1]);
  await until(async () => (await cpuOf("busy").catch(() => 0)) > 50);
  expect(await cpuOf("busy")).toBeGreaterThan(await cpuOf("keeper"));
  const [, memory] = / (\d+)Mi/.exec(await engine.kubectl("top", "pod", "keeper", "--no-headers")) ?? [];
  expect(Number(memory)).toBeGreaterThan(5);
  expect(await engine.kubectl("top", "node", "--no-headers")).toMatch(/^\S+ +[1-9]\d*m +\d+% +[1-9]\d*Mi +\d+%/);
  await engine.removePod("busy");
  const node = (await engine.readyPod("keeper")).spec?.nodeName ?? "";
  const read = async (name: string): Promise<number> => {
    const text = await engine.kubectl("get", "--raw", `/api/v1/nodes/${node}/proxy/metrics/cadvisor`);
    const line = text.split("\n").find((each) => each.startsWith(`${name}{`) && each.includes('pod="keeper"'));
    return Number(line?.split(" ")[1]);
  };
  const layer = await read("container_fs_usage_bytes");
  const sent = await read("container_network_transmit_bytes_total");
  await engine.sh("keeper", "dd if=/dev/zero of=/opt/filled bs=1M count=8; sync; getent hosts nowhere.invalid; true");
  expect(await read("container_fs_usage_bytes")).toBeGreaterThan(layer + 7 * mebibyte);
  expect(await read("container_network_transmit_bytes_total")).toBeGreaterThan(sent);
  expect(await read("kubelet_volume_stats_capacity_bytes")).toBe(64 * mebibyte);
});

test("volumes subPath: it stays below its volume, whatever a sandbox linked there", async () => {
  await engine.sh("keeper", "ln -s /etc /data/absolute; ln -s ../../../.. /data/upward");
  await engine.removePod("keeper");
  const volumes = [{ name: "data", persistentVolumeClaim: { claimName: "data" } }];
  const found = { inner: "deep\nfile\n", "made/below": "" };
  for (const subPath of ["absolute", "upward", ...Object.keys(found)]) {
    const name = `sub-${subPath.replace("/", "-")}`;
    await start(name, { volumes, mounts: {}, more: [{ name: "data", mountPath: "/sub", subPath }] });
    if (subPath in found) {
      await engine.readyPod(name);
      const { stdout } = await engine.sh(name, "cat /sub/file 2>/dev/null; ls /sub; touch /sub/new && rm /sub/new");
      expect(stdout).toBe(found[subPath as keyof typeof found]);
    } else {
      const endOf = ({ status }: Pod): string | undefined => {
        const { state, lastState } = status?.containerStatuses?.[0] ?? {};
        return (state?.terminated ?? lastState?.terminated)?.message;
      };
      const refused = await engine.podWhere(name, (pod) => endOf(pod) !== undefined);
      expect([subPath, endOf(refused)]).toEqual([subPath, expect.stringContaining("subPath")]);
    }
    await engine.removePod(name);
  }
});

test("volumes hostPath: a directory that nobody allowed is refused with the reason, and an allowed one is there", async () => {
  await start("refused", { volumes: [{ name: "h", hostPath: { path: "/etc" } }], mounts: { h: "/h" } });
  await start("granted", { volumes: [{ name: "h", hostPath: { path: shared } }], mounts: { h: "/h" } });
  const refused = await engine.podWhere("refused", ({ status }) => status?.phase === "Failed");
  expect(`${refused.status?.reason} ${refused.status?.message}`).toContain("/etc");
  await engine.readyPod("granted");
  expect((await engine.sh("granted", "cat /h/file")).stdout).toBe("of the host");
});

test("volumes files: a change arrives whole, but not through a subPath", async () => {
  const read = async (): Promise<string> =>
    (
      await engine.sh(
        "reader",
        "cat /settings/deep/color /projected/color /etc/color; echo; cat /secret/word; stat -Lc ' %a' /secret/word",
      )
    ).stdout;
  expect(await read()).toBe("redredred\nhush 400\n");
  expect((await engine.sh("reader", "cat /downward/labels; echo; cat /downward/memory")).stdout).toBe(
    `tier="gold"\n${256 * mebibyte}`,
  );
  expect((await engine.sh("reader", "readlink /settings/deep; touch /settings/x")).exitCode).not.toBe(0);
  await engine.client.patch(
    configMaps,
    { namespace, name: "settings" },
    { type: "merge", body: { data: { color: "blue" } } },
  );
  // A change of the pod itself is looked after at once; without it the files follow within a minute.
  await engine.kubectl("label", "pod", "reader", "--overwrite", "tier=silver");
  await until(async () => (await read()).startsWith("blueblue"));
  expect(await read()).toBe("bluebluered\nhush 400\n");
  expect((await engine.sh("reader", "cat /downward/labels")).stdout).toBe('tier="silver"');
});

test("volumes token: the API server knows it and its pod, and another replaces it", async () => {
  const token = async (): Promise<string> => (await engine.sh("reader", "cat /projected/token")).stdout;
  const first = await token();
  expect(await review(first, "vault")).toMatchObject({
    authenticated: true,
    user: {
      username: "system:serviceaccount:default:default",
      extra: { "authentication.kubernetes.io/pod-name": ["reader"] },
    },
  });
  expect(await review(first, "other")).not.toMatchObject({ authenticated: true });
  // Tokens live ten minutes at least; an agent that starts again has none and fetches its own.
  await killRole(engine, "node");
  await until(async () => (await token().catch(() => first)) !== first);
  expect(await review(await token(), "vault")).toMatchObject({ authenticated: true });
});

async function review(token: string, audience: string): Promise<TokenReview["status"]> {
  const object: TokenReview = {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenReview",
    metadata: { name: "" },
    spec: { token, audiences: [audience] },
  };
  return (await engine.client.create(tokenReviews, object)).status;
}

test("volumes writable layer: it has a limit, and a suspended sandbox finds it again", async () => {
  const container = {
    name: "main",
    image: "host",
    command: ["sleep", "infinity"],
    resources: { limits: { "ephemeral-storage": "32Mi" } },
  };
  const sandbox: Sandbox = {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "kept", namespace },
    spec: { podTemplate: { spec: { containers: [container] } } },
  };
  await engine.client.create(sandboxes, sandbox);
  await until(() =>
    engine.readyPod("kept").then(
      () => true,
      () => false,
    ),
  );
  const full = await fill("kept", "/big", 64);
  expect([full.text.includes(noSpace), full.bytes < 32 * mebibyte]).toEqual([true, true]);
  await engine.sh("kept", "mkdir -p /opt/tool && echo installed > /opt/tool/file");
  const mode = (operatingMode: string): Promise<unknown> =>
    engine.client.patch(sandboxes, { namespace, name: "kept" }, { type: "merge", body: { spec: { operatingMode } } });
  await mode("Suspended");
  await until(async () => (await engine.kubectl("get", "pods", "-o", "name")).includes("pod/kept") === false);
  await mode("Running");
  await until(() =>
    engine.readyPod("kept").then(
      () => true,
      () => false,
    ),
  );
  expect((await engine.sh("kept", "cat /opt/tool/file")).stdout).toBe("installed\n");
});
