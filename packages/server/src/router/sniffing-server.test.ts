import { once } from "node:events";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import net, { type AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import tls from "node:tls";
import { afterEach, expect, test } from "vitest";
import { issue } from "../../../../test/kube/tls-server.ts";
import { createSniffingServer, type SniffingServer } from "./sniffing-server.ts";

const opened: SniffingServer[] = [];

afterEach(() => {
  for (const one of opened.splice(0)) {
    one.server.close();
    one.destroy();
  }
});

const { certificatePem: cert, privateKeyPem: key } = issue("router", { kind: "server", names: ["127.0.0.1"] });

/** A server that begins every answer and ends none. */
async function open(pingEveryMs: number): Promise<{ port: number; closed: Promise<void>; begun: Promise<void> }> {
  const closed = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  const sniffing = createSniffingServer(
    {
      onRequest: (_request, response) => {
        response.once("close", closed.resolve);
        response.writeHead(200);
        response.flushHeaders();
        begun.resolve();
      },
      onUpgrade: (_request, socket) => socket.destroy(),
    },
    { pingEveryMs, tls: { cert, key, clientCertificate: "off" } },
  );
  opened.push(sniffing);
  sniffing.server.listen(0, "127.0.0.1");
  await once(sniffing.server, "listening");
  const { port } = sniffing.server.address() as AddressInfo;
  return { port, closed: closed.promise, begun: begun.promise };
}

// The preface, empty settings, and a GET of http://x/.
const request = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
  Buffer.from([0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x01, 1, 0x78]),
]);

test("sniffing server: a client of HTTP/2 that answers no ping is let go, and its exchange ends", async () => {
  const { port, closed, begun } = await open(20);
  const socket = net.connect(port, "127.0.0.1").resume();
  socket.on("error", () => undefined);
  socket.write(request);
  await begun;
  const gone = once(socket, "close");
  await closed;
  await gone;
});

async function connect(protocol: "clear text" | "TLS", port: number): Promise<net.Socket> {
  const to = { host: "127.0.0.1", port };
  if (protocol === "clear text") return net.connect(to);
  const socket = tls.connect({ ...to, ca: cert, ALPNProtocols: ["h2"] });
  await once(socket, "secureConnect");
  return socket;
}

test.each(["clear text", "TLS"] as const)(
  "sniffing server: a client of HTTP/2 that closes its connection ends its exchange, %s",
  async (protocol) => {
    const { port, closed, begun } = await open(60_000);
    const socket = await connect(protocol, port);
    socket.resume().on("error", () => undefined);
    socket.write(request);
    await begun;
    socket.end();
    await closed;
  },
);

test("sniffing server: a client of HTTP/2 that answers pings keeps its exchange", async () => {
  const { port, closed } = await open(10);
  const client = http2.connect(`http://127.0.0.1:${port}`);
  let isClosed = false;
  void closed.then(() => (isClosed = true));
  let pings = 0;
  client.on("ping", () => (pings += 1));
  const stream = client.request({ ":path": "/" });
  await once(stream, "response");
  await expect.poll(() => pings, { timeout: 10_000 }).toBeGreaterThan(5);
  expect(isClosed).toBe(false);
  client.destroy();
  await closed;
});

test("sniffing server: the kernel asks silent clients of every protocol whether they are there", async () => {
  const { port, begun } = await open(60_000);
  const socket = net.connect(port, "127.0.0.1");
  socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  await begun;
  await once(socket, "data");
  const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const timerOf = (): string | undefined =>
    readFileSync("/proc/net/tcp", "utf8")
      .split("\n")
      .map((line) => line.trim().split(/\s+/))
      .find(([, from, , state]) => from?.endsWith(local) === true && state === "01")?.[5];
  // "02" is the timer of keep-alive; before the answer is acknowledged it is the one of repeating it.
  for (let tries = 0; timerOf()?.startsWith("02") !== true && tries < 100; tries += 1) await sleep(10);
  expect(timerOf()).toMatch(/^02:/);
  socket.destroy();
});
