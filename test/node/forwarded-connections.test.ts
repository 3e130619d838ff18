import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import type { Pod } from "@agent-sandbox/api";
import { pods } from "@agent-sandbox/api";
import { afterEach, beforeEach, expect, test } from "vitest";
import { WebSocket } from "ws";
import { makeCertificate, type TestCertificate } from "./certificate.ts";
import { isReady, NodeWorld } from "./node-world.ts";

/** Addresses of loopback: the test itself listens where the Pod's programs would. */
const podCidr = "127.77.0.0/16";

let world: NodeWorld;
let admin: TestCertificate;
let pod: Pod;
let listener: Server;
let inside: Promise<Socket>;
const accepted: Socket[] = [];

beforeEach(async () => {
  admin = await makeCertificate("/O=system:masters/CN=kube-apiserver");
  const { certificate, key } = await makeCertificate("/CN=node");
  const kubelet = { host: "127.0.0.1", port: 0, certificate, key, clientCa: admin.certificate };
  world = await NodeWorld.start({ podCidr, kubelet });
  const sleep = { image: "host", command: ["sleep", "1d"] };
  await world.createPod("target", {
    restartPolicy: "Never",
    containers: [
      { name: "main", ...sleep },
      { name: "side", ...sleep },
    ],
  });
  pod = await world.podWhere("target", isReady);
  listener = createServer({ allowHalfOpen: true }, (socket) => accepted.push(socket));
  inside = once(listener, "connection").then(([socket]: Socket[]) => socket as Socket);
  await once(listener.listen(0, pod.status?.podIP), "listening");
});

afterEach(async () => {
  for (const socket of accepted.splice(0)) socket.destroy();
  listener.close();
  await world[Symbol.asyncDispose]();
});

/** Asks the node's endpoint for a connection to the Pod's port. */
function open(): WebSocket {
  const { port } = listener.address() as { port: number };
  const url = `wss://127.0.0.1:${world.agent?.kubeletPort ?? 0}/portForward/default/target?port=${port}`;
  const { certificate: cert, key } = admin;
  return new WebSocket(url, ["v4.channel.k8s.io"], { rejectUnauthorized: false, cert, key });
}

/** A connection that has carried something both ways. */
async function forward(): Promise<WebSocket> {
  const socket = open();
  await once(socket, "open");
  socket.send(Buffer.from("\0ping"));
  expect(String(await next(await inside))).toBe("ping");
  const answered = new Promise<string>((resolve) => {
    socket.on("message", (message: Buffer) => {
      if (message[0] === 0 && message.length > 3) resolve(message.subarray(1).toString());
    });
  });
  (await inside).write("pong");
  expect(await answered).toBe("pong");
  return socket;
}

async function next(socket: Socket): Promise<Buffer> {
  const [chunk] = (await once(socket, "data")) as [Buffer];
  return chunk;
}

function hostIds(): string[] {
  return (pod.status?.containerStatuses ?? []).map(({ containerID = "" }) => containerID.replace(/^.*:\/\//, ""));
}

test("forwarded connection: ends with the last container of its Pod, and not before", async () => {
  const socket = await forward();
  const closed = once(socket, "close");
  const [first = "", second = ""] = hostIds();
  world.fake.exitContainer(first, 0);
  await world.podWhere("target", ({ status }) =>
    (status?.containerStatuses ?? []).some(({ state }) => state?.terminated !== undefined),
  );
  socket.send(Buffer.from("\0still"));
  expect(String(await next(await inside))).toBe("still");
  const endInside = once((await inside).resume(), "end");
  world.fake.exitContainer(second, 0);
  await closed;
  await endInside;
});

test("forwarded connection: ends at once where its Pod has ended before", async () => {
  for (const id of hostIds()) world.fake.exitContainer(id, 0);
  await world.podWhere("target", ({ status }) => status?.phase === "Succeeded");
  await once(open(), "close");
});

test("forwarded connection: ends when its Pod is deleted", async () => {
  const socket = await forward();
  const closed = once(socket, "close");
  await world.client.delete(pods, { namespace: "default", name: "target" }, { gracePeriodSeconds: 0 });
  await closed;
});

test("forwarded connection: the program's end reaches the caller", async () => {
  const socket = await forward();
  const closed = once(socket, "close");
  (await inside).end();
  await closed;
});

test("forwarded connection: the caller's end reaches the program", async () => {
  const socket = await forward();
  const ended = once((await inside).resume(), "end");
  socket.close();
  await ended;
});
