import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { ApiError, ignore, namespaces, type Pod, pods, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { allCapabilities, defaultCapabilities } from "../../packages/server/src/node/pods/capabilities.ts";
import { RealEngine } from "../node/real-engine.ts";

let engine: RealEngine;
let secrets: string;

const mebibyte = 2 ** 20;
const python = "/usr/bin/python3";

beforeAll(async () => {
  secrets = mkdtempSync("/tmp/as-secret-");
  writeFileSync(path.join(secrets, "file"), "of the host", { mode: 0o644 });
  engine = await RealEngine.open("--allow-host-path", secrets);
  const limits = { memory: "200Mi", "ephemeral-storage": "64Mi" };
  const hog = { name: "main", image: "host", command: ["sleep", "infinity"], resources: { limits } };
  await Promise.all([
    engine.startPod("bystander"),
    engine.startPod("plain"),
    engine.startPod("hog", { spec: { containers: [hog] } }),
    engine.startPod("mighty", {
      spec: {
        containers: [
          {
            name: "main",
            image: "host",
            command: ["sleep", "infinity"],
            securityContext: { capabilities: { add: ["ALL"], drop: ["CHOWN"] } },
          },
        ],
      },
    }),
    engine.startPod("chatty", {
      command: ["sh", "-c", "yes 0123456789abcdef0123456789abcdef | head -c 160000000; sleep infinity"],
    }),
    engine.startPod("allowed", {
      spec: {
        volumes: [{ name: "h", hostPath: { path: secrets } }],
        containers: [
          {
            name: "main",
            image: "host",
            command: ["sleep", "infinity"],
            volumeMounts: [{ name: "h", mountPath: "/h", readOnly: true }],
            securityContext: { capabilities: { add: ["NET_ADMIN"], drop: ["CHOWN"] } },
          },
        ],
      },
    }),
  ]);
  for (const name of ["bystander", "plain", "hog", "mighty", "chatty", "allowed"]) await engine.readyPod(name);
});

afterAll(async () => {
  rmSync(secrets, { recursive: true, force: true });
  await engine[Symbol.asyncDispose]();
});

/** The machine starts programs, the API answers, and another sandbox runs commands. */
async function expectUsable(): Promise<void> {
  expect(spawnSync("/bin/true").status).toBe(0);
  expect((await engine.sh("bystander", "echo alive")).stdout).toBe("alive\n");
}

test("containment files: nothing of the host but /usr is there, and a path that was allowed is", async () => {
  const seen = await engine.sh(
    "plain",
    `cat ${secrets}/file /etc/shadow /root/.bashrc; ls /home /root /usr/local ${engine.dataDir}`,
  );
  expect(seen.stdout).not.toContain("of the host");
  expect(seen.stderr).toContain("No such file");
  const listing = await engine.sh(
    "plain",
    "ls -A /root /usr/local /var /srv /opt /media /mnt 2>/dev/null | grep -v ':$' | sort -u",
  );
  expect(listing.stdout.split("\n").filter((name) => readNames("/root").includes(name) && name !== "")).toEqual([]);
  expect((await engine.sh("plain", "test -x /usr/bin/env && echo yes")).stdout).toBe("yes\n");
  expect((await engine.sh("plain", "touch /usr/bin/mine")).exitCode).not.toBe(0);
  expect((await engine.sh("allowed", "cat /h/file")).stdout).toBe("of the host");
});

function readNames(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir) : [];
}

test("containment capabilities: exactly the default set, and what a pod adds or drops changes it", async () => {
  const read = async (pod: string): Promise<bigint> => {
    const { stdout } = await engine.sh(pod, "grep -E 'Cap(Eff|Bnd)' /proc/self/status | awk '{print $2}' | sort -u");
    const sets = stdout.trim().split("\n");
    expect(sets).toHaveLength(1);
    return BigInt(`0x${sets[0] ?? "0"}`);
  };
  const own = await read("plain");
  expect(own).toBe(maskOf(defaultCapabilities));
  const changed = [...defaultCapabilities.filter((name) => name !== "CAP_CHOWN"), "CAP_NET_ADMIN"];
  expect(await read("allowed")).toBe(maskOf(changed));
  expect(await read("mighty")).toBe(maskOf(allCapabilities.filter((name) => name !== "CAP_CHOWN")));
  expect((await engine.sh("plain", "mount -t tmpfs x /mnt")).exitCode).not.toBe(0);
});

function maskOf(names: readonly string[]): bigint {
  return names.reduce((mask, name) => mask | (1n << BigInt((allCapabilities as readonly string[]).indexOf(name))), 0n);
}

test("containment fork bomb: it ends at the limit and nobody else notices", async () => {
  const bomb =
    "import os,time\nend=time.time()+4\nwhile time.time()<end:\n  try: os.fork()\n  except OSError: time.sleep(0.05)\nos._exit(0)";
  const few =
    "import os\nfor i in range(50):\n  if os.fork() == 0: os._exit(0)\nprint(sum(os.wait()[0] > 0 for i in range(50)))";
  expect((await engine.run("hog", [python, "-c", few])).stdout).toBe("50\n");
  const exploding = engine.run("hog", [python, "-c", bomb], { timeoutMs: 20_000 }).catch(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  await expectUsable();
  expect(Math.max(...podTasks())).toBeLessThanOrEqual(4096);
  await exploding;
  await expectUsable();
});

/** Host tasks of every pod's cgroup. */
function podTasks(): number[] {
  const root = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map((dir) =>
    path.join(dir, `agent-sandbox-${engine.instance}`),
  );
  const found = root.find((dir) => existsSync(dir));
  if (found === undefined) throw new Error("the engine has no cgroup that counts tasks");
  return readdirSync(found, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith("pids.current"))
    .map((name) => Number(readFileSync(path.join(found, name), "utf8")));
}

test("containment memory hog: its own pod is killed for it, and one within its limit is not", async () => {
  const take = (size: number): string[] => [
    python,
    "-c",
    `b=bytearray(${size * mebibyte}); b[::4096]=b'x'*len(b[::4096]); print(len(b))`,
  ];
  const before = (await engine.podWhere("hog", () => true)).status?.containerStatuses?.[0]?.restartCount ?? 0;
  expect((await engine.run("bystander", take(300))).stdout.trim()).toBe(String(300 * mebibyte));
  await engine.readyPod("hog");
  // Its whole sandbox is killed, and so is the command: by SIGKILL, whatever is seen to end first.
  expect((await engine.run("hog", take(900), { timeoutMs: 30_000 })).exitCode).toBe(137);
  const after = await engine.podWhere(
    "hog",
    ({ status }) => (status?.containerStatuses?.[0]?.restartCount ?? 0) > before,
  );
  expect(after.status?.containerStatuses?.[0]?.lastState?.terminated).toMatchObject({
    reason: "OOMKilled",
    exitCode: 137,
  });
  await expectUsable();
  await engine.readyPod("hog");
});

test("containment disk hog: writing ends at the limit wherever a sandbox can write", async () => {
  await engine.readyPod("hog");
  const fill = (file: string, count: number): string =>
    `dd if=/dev/zero of=${file} bs=1M count=${count} 2>&1; stat -c %s ${file}; rm -f ${file}`;
  expect((await engine.sh("hog", fill("/small", 10))).stdout).toContain(`\n${10 * mebibyte}\n`);
  for (const file of ["/big", "/.agent-sandbox/state/big"]) {
    const { stdout } = await engine.sh("hog", fill(file, 300));
    expect(stdout).toContain("No space left on device");
    expect(Number(stdout.trim().split("\n").at(-1))).toBeLessThan(150 * mebibyte);
  }
  await expectUsable();
});

test("containment log hog: old lines go, new ones stay readable, and the files have a bound", async () => {
  const line = "0123456789abcdef0123456789abcdef";
  expect(await engine.kubectl("logs", "chatty", "--tail=1")).toBe(`${line}\n`);
  const total = (await engine.sh("chatty", "du -sb /.agent-sandbox/state | cut -f1")).stdout;
  expect(Number(total)).toBeGreaterThan(20 * mebibyte);
  expect(Number(total)).toBeLessThan(60 * mebibyte);
  expect(statSync(engine.dataDir).isDirectory()).toBe(true);
});

test("containment descriptor hog: it runs out alone", async () => {
  const hold =
    "import os,time\nfs=[]\ntry:\n  while True: fs.append(os.open('/dev/null',0))\nexcept OSError as e: print(e.errno, len(fs))\ntime.sleep(1)";
  const { stdout } = await engine.run("plain", [python, "-c", hold]);
  expect(stdout).toMatch(/^24 \d+/);
  const few = "import os; print(len([os.open('/dev/null', 0) for i in range(500)]))";
  expect((await engine.run("plain", [python, "-c", few])).stdout).toBe("500\n");
  await expectUsable();
  expect((await engine.sh("plain", "ls / | wc -l")).exitCode).toBe(0);
});

/** Tries every way to bind the daemon's port beside it, and says which worked. */
const bindsBeside = `import socket,sys
own=sys.argv[1]; port=49900; got=[]
flags={"plain":[],"addr":[socket.SO_REUSEADDR],"port":[socket.SO_REUSEPORT],"both":[socket.SO_REUSEADDR,socket.SO_REUSEPORT]}
for family,address in [(socket.AF_INET,own),(socket.AF_INET,"0.0.0.0"),(socket.AF_INET,"127.0.0.1"),(socket.AF_INET6,"::"),(socket.AF_INET6,"::1"),(socket.AF_INET6,"::ffff:"+own),(socket.AF_INET6,"::ffff:0.0.0.0")]:
  for name,options in flags.items():
    for only in ([0,1] if family==socket.AF_INET6 else [0]):
      try:
        s=socket.socket(family)
        if family==socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6,socket.IPV6_V6ONLY,only)
        for option in options: s.setsockopt(socket.SOL_SOCKET,option,1)
        s.bind((address,port)); s.listen(8); got.append((address,name,only))
      except OSError as e: pass
print(got,flush=True)`;

test("containment daemon: no program binds its port beside it, by any address or option, and it is the daemon that is reached", async () => {
  const { status } = await engine.readyPod("plain");
  const own = status?.podIP ?? "";
  const tried = await engine.sh("plain", `python3 -c '${bindsBeside.replaceAll("'", "'\\''")}' ${own}`);
  expect(tried.stdout).toBe("[]\n");
  // The same on a free port: the tries themselves work.
  const control = bindsBeside.replace("port=49900", "port=49901").replaceAll("'", "'\\''");
  expect((await engine.sh("plain", `python3 -c '${control}' ${own}`)).stdout).toContain(`('${own}', 'plain', 0)`);
});

test("containment daemon: a program that ends it ends with it, and finds the port taken from its next start on", async () => {
  const ends =
    'test -e /kept/ended || { touch /kept/ended; kill -9 1; sleep 10; }; python3 -c "$BINDS" $(hostname -i) > /kept/bound';
  const main = {
    name: "main",
    image: "host",
    command: ["sh", "-c", `${ends}; sleep infinity`],
    env: [{ name: "BINDS", value: bindsBeside }],
    volumeMounts: [{ name: "kept", mountPath: "/kept" }],
  };
  const volumes = [{ name: "kept", emptyDir: {} }];
  await engine.startPod("killer", { spec: { restartPolicy: "Always", volumes, containers: [main] } });
  await engine.podWhere("killer", ({ status }) => status?.containerStatuses?.[0]?.restartCount === 1);
  await engine.readyPod("killer");
  await expect
    .poll(async () => (await engine.sh("killer", "cat /kept/bound")).stdout, { timeout: 15_000 })
    .toBe("[]\n");
}, 60_000);

/** A Pod that says it is the Sandbox's and would leave its mark in the Sandbox's files; undefined where the API refuses it. */
async function forge(victim: Sandbox, name: string, namespace: string): Promise<Pod | undefined> {
  const { name: ownerName, uid = "" } = victim.metadata;
  const owner = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name: ownerName, uid, controller: true };
  const script = "cat /opt/secret; touch /opt/stolen; sleep infinity";
  return engine
    .startPod(name, { metadata: { name, namespace, ownerReferences: [owner] }, command: ["sh", "-c", script] })
    .catch((error: unknown) => {
      if (error instanceof ApiError) return undefined;
      throw error;
    });
}

const runsAnything = ({ status }: Pod): boolean =>
  status?.podIP !== undefined || status?.containerStatuses?.some(({ state }) => state?.waiting === undefined) === true;

test("invariant ownership-is-proven: a Pod with a forged reference gets neither the files nor the address of its victim", async () => {
  const key = { namespace: "default", name: "owner" };
  const container = { name: "main", image: "host", command: ["sleep", "infinity"] };
  const victim = await engine.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: key,
    spec: { podTemplate: { spec: { containers: [container], terminationGracePeriodSeconds: 1 } } },
  });
  const isAwake = ({ status }: Sandbox): boolean =>
    status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") ?? false;
  const before = (await engine.objectWhere(sandboxes, key, isAwake)).status;
  await engine.sh("owner", "mkdir -p /opt && echo mine > /opt/secret");
  await engine.client.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: "tenant-b" } });
  const forged = [await forge(victim, "thief", "default"), await forge(victim, "thief", "tenant-b")];
  for (const { metadata } of forged.filter((pod) => pod !== undefined)) {
    // It waits, and says for what, or the collector has taken it away: its owner is not of its namespace.
    const { namespace = "", name } = metadata;
    const find = (): Promise<Pod | undefined> => engine.client.get(pods, { namespace, name }).catch(ignore("NotFound"));
    const waitsFor = async (): Promise<string> => {
      const pod = await find();
      return pod === undefined ? "nothing" : (pod.status?.containerStatuses?.[0]?.state?.waiting?.reason ?? "start");
    };
    await expect.poll(waitsFor, { timeout: 20_000 }).toMatch(/nothing|OwnerNotProven/);
    const seen = await find();
    expect(seen !== undefined && runsAnything(seen)).toBe(false);
  }
  expect((await engine.client.get(sandboxes, key)).status?.podIPs).toEqual(before?.podIPs);
  const mode = (operatingMode: string): Promise<unknown> =>
    engine.client.patch(sandboxes, key, { type: "merge", body: { spec: { operatingMode } } });
  await mode("Suspended");
  await engine.objectWhere(sandboxes, key, ({ status }) => status?.podIPs === undefined);
  const late = await forge(victim, "late-thief", "default");
  if (late !== undefined) {
    await expect
      .poll(() => engine.client.get(pods, { namespace: "default", name: "late-thief" }).catch(ignore("NotFound")), {
        timeout: 20_000,
      })
      .toBeUndefined();
  }
  await mode("Running");
  const after = (await engine.objectWhere(sandboxes, key, isAwake)).status;
  expect(after?.podIPs).toEqual(before?.podIPs);
  expect((await engine.sh("owner", "cat /opt/secret; ls /opt")).stdout).toBe("mine\nsecret\n");
});
