import { once } from "node:events";
import { get } from "node:https";
import type { Pod } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import { makeCertificate, type TestCertificate } from "./certificate.ts";
import { isReady, NodeWorld } from "./node-world.ts";

let world: NodeWorld;
let admin: TestCertificate;
let nobody: TestCertificate;
let pod: Pod;

beforeAll(async () => {
  admin = await makeCertificate("/O=system:masters/CN=kube-apiserver");
  nobody = await makeCertificate("/CN=stranger");
  const { certificate, key } = await makeCertificate("/CN=node");
  world = await NodeWorld.start({
    kubelet: { host: "127.0.0.1", port: 0, certificate, key, clientCa: admin.certificate },
  });
  await world.createPod("target", { containers: [{ name: "main", image: "host", command: ["sleep", "1d"] }] });
  pod = await world.podWhere("target", isReady);
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

function open(path: string, protocol: string, as: TestCertificate = admin): WebSocket {
  const url = `wss://127.0.0.1:${world.agent?.kubeletPort ?? 0}${path}`;
  return new WebSocket(url, [protocol], { rejectUnauthorized: false, cert: as.certificate, key: as.key });
}

interface Reply {
  readonly status: number;
  readonly body: string;
}

function fetchNode(path: string, as?: TestCertificate): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const credentials = as === undefined ? {} : { cert: as.certificate, key: as.key };
    const url = `https://127.0.0.1:${world.agent?.kubeletPort ?? 0}`;
    // The path goes out as it is: an address would be made well first.
    get(url, { path, rejectUnauthorized: false, agent: false, ...credentials }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
    }).on("error", reject);
  });
}

/** Everything a command sent, by channel, until it ended. */
async function collect(socket: WebSocket, input?: string): Promise<Map<number, string>> {
  const channels = new Map<number, string>();
  socket.on("message", (message: Buffer) => {
    const channel = message[0] ?? -1;
    channels.set(channel, (channels.get(channel) ?? "") + message.subarray(1).toString());
  });
  await once(socket, "open");
  if (input !== undefined) {
    socket.send(Buffer.concat([Buffer.from([0]), Buffer.from(input)]));
    socket.send(Buffer.from([255, 0]));
  }
  await once(socket, "close");
  return channels;
}

test("kubelet exec: output and success arrive over v5 channels", async () => {
  const channels = await collect(
    open("/exec/default/target/main?command=echo&command=hello&output=1&error=1", "v5.channel.k8s.io"),
  );
  expect(channels.get(1)).toBe("hello\n");
  expect(JSON.parse(channels.get(3) ?? "")).toMatchObject({ status: "Success" });
});

test("kubelet exec: a non-zero exit code arrives as a status over v4 channels", async () => {
  const channels = await collect(
    open("/exec/default/target/main?command=sh&command=-c&command=exit%207&output=1", "v4.channel.k8s.io"),
  );
  expect(JSON.parse(channels.get(3) ?? "")).toMatchObject({
    reason: "NonZeroExitCode",
    details: { causes: [{ reason: "ExitCode", message: "7" }] },
  });
});

test("kubelet exec: input reaches the command and its end closes it", async () => {
  const channels = await collect(
    open("/exec/default/target/main?command=cat&input=1&output=1", "v5.channel.k8s.io"),
    "typed",
  );
  expect(channels.get(1)).toBe("typed");
});

test("kubelet exec: a program that does not exist fails with the reason", async () => {
  const channels = await collect(open("/exec/default/target/main?command=/no/such&output=1", "v5.channel.k8s.io"));
  expect(JSON.parse(channels.get(3) ?? "")).toMatchObject({ status: "Failure", reason: "InternalError" });
});

test("kubelet exec: an unknown container is refused before the upgrade", async () => {
  const socket = open("/exec/default/target/other?command=true&output=1", "v5.channel.k8s.io");
  const [error] = (await once(socket, "error")) as [Error];
  expect(error.message).toContain("404");
});

test("kubelet: a certificate of another signer is nobody", async () => {
  expect((await fetchNode("/healthz", nobody)).status).toBe(401);
  expect((await fetchNode("/healthz")).status).toBe(401);
});

test.each(["//", "/containerLogs/%zz/a/b", "http://[/"])(
  "kubelet: the target %s is refused as malformed, after who asks",
  async (path) => {
    expect((await fetchNode(path)).status).toBe(401);
    expect((await fetchNode(path, admin)).status).toBe(400);
  },
);

test("kubelet: tells its health and its pods to whom it trusts", async () => {
  expect(await fetchNode("/healthz", admin)).toEqual({ status: 200, body: "ok" });
  const pods = JSON.parse((await fetchNode("/pods", admin)).body) as { items: Pod[] };
  expect(pods.items.map(({ metadata }) => metadata.uid)).toEqual([pod.metadata.uid]);
});

test("kubelet: figures of every pod are served in both forms", async () => {
  const summary = JSON.parse((await fetchNode("/stats/summary", admin)).body) as {
    pods: { podRef: { name: string } }[];
  };
  expect(summary.pods.map(({ podRef }) => podRef.name)).toEqual(["target"]);
  expect((await fetchNode("/metrics/resource", admin)).body).toContain(
    'pod_cpu_usage_seconds_total{namespace="default",pod="target"}',
  );
});

test("kubelet: a wrong option and an unknown path are told apart", async () => {
  expect((await fetchNode("/containerLogs/default/target/main?tailLines=-1", admin)).status).toBe(400);
  expect((await fetchNode("/nothing", admin)).status).toBe(404);
  expect((await fetchNode("/containerLogs/default/target/main?previous=true", admin)).status).toBe(400);
});

/** Opens a command; the message is what a refused one is refused with. */
async function tryOpen(path: string): Promise<{ socket: WebSocket; message: string }> {
  const socket = open(path, "v5.channel.k8s.io");
  const message = await once(socket, "open").then(
    () => "open",
    (error: Error) => error.message,
  );
  socket.on("error", () => undefined);
  return { socket, message };
}

test("kubelet exec: a pod has so many commands at once, and another pod still has its own", async () => {
  await world.createPod("other", { containers: [{ name: "main", image: "host", command: ["sleep", "1d"] }] });
  await world.podWhere("other", isReady);
  const path = (name: string): string => `/exec/default/${name}/main?command=sleep&command=9&output=1`;
  const opened = await Promise.all(Array.from({ length: 132 }, () => tryOpen(path("target"))));
  const neighbour = await tryOpen(path("other"));
  const refused = opened.filter(({ message }) => message !== "open");
  for (const { socket } of [...opened, neighbour]) socket.terminate();
  expect(refused).toHaveLength(4);
  expect(refused[0]?.message).toContain("429");
  expect(neighbour.message).toBe("open");
});
