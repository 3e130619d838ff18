import { type ConfigMap, configMaps, type Pod, type PodSpec, pods } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isReady, RealEngine, until } from "./real-engine.ts";

let engine: RealEngine;

const sleeping = { name: "main", image: "host", command: ["sleep", "infinity"] };
const shell = (script: string) => ({ name: "main", image: "host", command: ["sh", "-c", script] });
const never = { restartPolicy: "Never" } as const;

/** One pod per line of the promise; all start at once. */
const specs: Record<string, PodSpec> = {
  named: {
    hostname: "box",
    subdomain: "boxes",
    hostAliases: [{ ip: "192.0.2.7", hostnames: ["elsewhere.test"] }],
    dnsPolicy: "None",
    dnsConfig: { nameservers: ["192.0.2.53"], searches: ["inside.test"], options: [{ name: "ndots", value: "2" }] },
    containers: [
      {
        ...sleeping,
        workingDir: "/tmp",
        envFrom: [{ configMapRef: { name: "settings" }, prefix: "SET_" }],
        env: [{ name: "LIMIT", valueFrom: { resourceFieldRef: { resource: "limits.memory" } } }],
        resources: { limits: { memory: "256Mi" } },
      },
    ],
  },
  confined: {
    securityContext: { runAsUser: 1234, runAsGroup: 2345, fsGroup: 3456, runAsNonRoot: true },
    volumes: [{ name: "scratch", emptyDir: {} }],
    containers: [
      {
        ...sleeping,
        volumeMounts: [{ name: "scratch", mountPath: "/scratch" }],
        securityContext: {
          readOnlyRootFilesystem: true,
          allowPrivilegeEscalation: false,
          capabilities: { drop: ["ALL"] },
        },
      },
    ],
  },
  hooked: {
    terminationGracePeriodSeconds: 20,
    containers: [
      {
        ...shell("trap 'test -e /tmp/leaving && exit 0; exit 9' TERM; while :; do sleep 0.1; done"),
        lifecycle: {
          postStart: { exec: { command: ["sh", "-c", "echo begun > /tmp/begun"] } },
          preStop: { exec: { command: ["sh", "-c", "sleep 0.2; touch /tmp/leaving"] } },
        },
      },
    ],
  },
  parting: { ...never, containers: [shell("printf 'out of ideas' > /dev/termination-log; exit 3")] },
  wordy: {
    ...never,
    containers: [{ ...shell("echo in the log; exit 4"), terminationMessagePolicy: "FallbackToLogsOnError" }],
  },
  // Long enough that its container runs by then on a busy machine too.
  brief: { activeDeadlineSeconds: 20, containers: [sleeping] },
  // Over before its image can be there.
  belated: { activeDeadlineSeconds: 1, containers: [{ ...sleeping, image: "127.0.0.1:9/never:1" }] },
  again: { restartPolicy: "OnFailure", containers: [shell("test -e /keep/once || { touch /keep/once; exit 1; }")] },
  probed: {
    containers: [
      {
        ...shell("cd /tmp; echo fine > healthy; exec /usr/bin/python3 -m http.server 8000 2>/dev/null"),
        ports: [{ name: "web", containerPort: 8000 }],
        startupProbe: { tcpSocket: { port: "web" }, periodSeconds: 1, failureThreshold: 60 },
        readinessProbe: { httpGet: { path: "/healthy", port: "web" }, periodSeconds: 1 },
        livenessProbe: { exec: { command: ["test", "-e", "/tmp/healthy"] }, periodSeconds: 1, failureThreshold: 1 },
      },
    ],
  },
};

beforeAll(async () => {
  engine = await RealEngine.open();
  const settings: ConfigMap = {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "settings", namespace: "default" },
    data: { COLOUR: "green" },
  };
  await engine.client.create(configMaps, settings);
  const again = specs["again"] as PodSpec;
  const [container] = again.containers;
  specs["again"] = {
    ...again,
    volumes: [{ name: "keep", emptyDir: {} }],
    containers: [{ ...(container as typeof sleeping), volumeMounts: [{ name: "keep", mountPath: "/keep" }] }],
  };
  for (const [name, spec] of Object.entries(specs)) {
    const pod: Pod = { apiVersion: "v1", kind: "Pod", metadata: { name, namespace: "default" }, spec };
    await engine.client.create(pods, pod);
  }
}, 120_000);

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
}, 60_000);

const endOf = (status: Pod["status"]) => status?.containerStatuses?.[0]?.state?.terminated;

const terminated = (name: string, phase: string) =>
  engine.podWhere(name, ({ status }) => status?.phase === phase).then(({ status }) => endOf(status));

test("pod spec: names, resolvers, aliases, directory and variables are as asked", async () => {
  await engine.readyPod("named");
  const { stdout } = await engine.sh(
    "named",
    "hostname; cat /etc/hosts /etc/resolv.conf; tr '\\0' '\\n' < /proc/1/environ",
  );
  for (const line of [
    "box\n",
    "\tbox.boxes.default.svc.cluster.local\tbox\n",
    "192.0.2.7\telsewhere.test\n",
    "nameserver 192.0.2.53\n",
    "search inside.test\n",
    "options ndots:2\n",
    "SET_COLOUR=green\n",
    `LIMIT=${256 * 2 ** 20}\n`,
  ])
    expect(stdout).toContain(line);
  expect((await engine.sh("named", "readlink /proc/1/cwd")).stdout).toBe("/tmp\n");
});

test("pod spec: user, groups, read-only root and capabilities are as asked", async () => {
  await engine.readyPod("confined");
  const script =
    "id -u; id -g; id -G; stat -c %g /scratch; touch /scratch/x && echo wrote; touch /var/tmp/x; grep -E 'CapEff|NoNewPrivs' /proc/self/status";
  const { stdout, stderr } = await engine.sh("confined", script);
  const [uid, gid, groups, owner, wrote, ...status] = stdout.trim().split("\n");
  expect([uid, gid, owner, wrote]).toEqual(["1234", "2345", "3456", "wrote"]);
  expect(groups?.split(" ")).toContain("3456");
  expect(stderr).toContain("Read-only file system");
  expect(status.join(" ")).toMatch(/CapEff:\s+0000000000000000/);
});

test("pod spec: postStart runs, and preStop runs before the signal, within the grace", async () => {
  await engine.readyPod("hooked");
  await until(async () => (await engine.sh("hooked", "cat /tmp/begun")).stdout === "begun\n");
  const stop = new AbortController();
  const select = { namespace: "default", fieldSelector: "metadata.name=hooked", signal: stop.signal };
  const last = (async () => {
    let seen: Pod | undefined;
    for await (const event of engine.client.watch(pods, select)) {
      if (event.type === "BOOKMARK") continue;
      seen = event.object as Pod;
      if (event.type === "DELETED") return seen;
    }
    return seen;
  })();
  await engine.client.delete(pods, { namespace: "default", name: "hooked" });
  const end = (await last)?.status?.containerStatuses?.[0]?.state?.terminated;
  stop.abort();
  expect(end).toMatchObject({ exitCode: 0, reason: "Completed" });
}, 60_000);

test("pod spec: a termination message is what was written, or the log of one that failed and asked for it", async () => {
  expect(await terminated("parting", "Failed")).toMatchObject({ exitCode: 3, message: "out of ideas" });
  expect(await terminated("wordy", "Failed")).toMatchObject({ exitCode: 4, message: "in the log\n" });
});

test("pod spec: a pod past its active deadline fails with that reason, and its container ends", async () => {
  const failed = await engine.podWhere("brief", ({ status }) => status?.phase === "Failed");
  expect(failed.status?.reason).toBe("DeadlineExceeded");
  const ended = await engine.podWhere("brief", ({ status }) => endOf(status) !== undefined);
  expect(endOf(ended.status)?.reason).not.toBe("ContainerStatusUnknown");
});

test("pod spec: a pod that never began by its active deadline fails with that reason", async () => {
  const failed = await engine.podWhere("belated", ({ status }) => status?.phase === "Failed");
  expect(failed.status?.reason).toBe("DeadlineExceeded");
  expect(endOf(failed.status)).toMatchObject({ exitCode: 137, reason: "ContainerStatusUnknown" });
});

test("pod spec: restartPolicy OnFailure starts a failed container again and leaves one that went well", async () => {
  const done = await engine.podWhere("again", ({ status }) => status?.phase === "Succeeded");
  expect(done.status?.containerStatuses?.[0]).toMatchObject({
    restartCount: 1,
    state: { terminated: { exitCode: 0 } },
  });
});

test("pod spec: readiness follows its probe, and a failed liveness probe restarts the container", async () => {
  await engine.readyPod("probed");
  await engine.sh("probed", "rm /tmp/healthy");
  const restarted = await engine.podWhere(
    "probed",
    (pod) => (pod.status?.containerStatuses?.[0]?.restartCount ?? 0) === 1 && isReady(pod),
  );
  expect(restarted.status?.phase).toBe("Running");
}, 90_000);
