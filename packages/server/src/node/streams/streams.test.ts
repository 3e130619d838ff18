import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { PassThrough, Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { WebSocket } from "ws";
import { controlFrame, dataFrame, words } from "../../../../kube/src/streams/spdy/frame.ts";
import { HeaderWriter } from "../../../../kube/src/streams/spdy/header-block.ts";
import { partOf } from "../../../../kube/src/testing/part-of.ts";
import type { ExecStream } from "../host/exec-stream.ts";
import type { Host } from "../host/host.ts";
import { SleepStates } from "../sleep/sleep-states.ts";
import { CommandRunner, type CommandTarget } from "./command-runner.ts";
import { type KubeletBackend, KubeletError } from "./kubelet-backend.ts";
import type { KubeletRoute } from "./kubelet-routes.ts";
import { serveUpgrade } from "./kubelet-upgrade.ts";
import { NodeBackend, type NodeBackendOptions } from "./node-backend.ts";
import type { RemoteCommand } from "./remote-command.ts";
import type { SandboxdClient } from "./sandboxd-client.ts";

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.close();
    server.closeAllConnections();
  }
});

/** An exec whose process reads nothing and, unless it floods, says nothing; it ends when it is closed. */
class StubbornExec implements ExecStream {
  readonly stdin = new PassThrough();
  readonly stdout: Readable;
  readonly stderr = Readable.from([]);
  readonly #ended = Promise.withResolvers<number>();
  readonly exit = this.#ended.promise;
  isClosed = false;
  /** Bytes of output that were taken. */
  made = 0;

  constructor(outputBytes = 0) {
    const piece = Buffer.alloc(32 * 1024);
    this.stdout = new Readable({
      read: () => {
        if (this.made >= outputBytes) return;
        this.made += piece.length;
        this.stdout.push(piece);
      },
    });
  }

  resize(): void {}

  async close(): Promise<void> {
    this.isClosed = true;
    this.stdout.destroy();
    this.#ended.resolve(137);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const streams = { stdin: true, stdout: true, stderr: false, tty: false };
const route: KubeletRoute = {
  kind: "exec",
  ref: { namespace: "a", pod: "b", container: "c" },
  command: ["x"],
  streams,
};

/** The node's endpoint without its door; every command is the given one. */
async function serve(exec: StubbornExec, held = new AbortController().signal): Promise<number> {
  const runner = new CommandRunner(partOf<Host>({ exec: async () => exec }));
  const target = partOf<CommandTarget>({ hostId: "h", process: { argv: [] } });
  const backend = partOf<KubeletBackend>({
    assertRunning: () => undefined,
    exec: (_ref: unknown, { command, tty }: { command: string[]; tty: boolean }, remote: RemoteCommand) =>
      runner.exec(target, command, tty, remote),
  });
  const server = createServer();
  servers.push(server);
  server.on("upgrade", (request, socket, head) => {
    socket.on("error", () => socket.destroy());
    serveUpgrade({ route, request, socket, head, backend, held }).catch(() => undefined);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

async function openWebsocket(port: number): Promise<WebSocket> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`, ["v5.channel.k8s.io"]).on("error", () => undefined);
  await once(socket, "open");
  return socket;
}

/** A SPDY client that has opened its three streams: error 1, stdin 3, stdout 5. */
async function openSpdy(port: number): Promise<Socket> {
  const socket = connect({ host: "127.0.0.1", port }).on("error", () => undefined);
  const head =
    "GET / HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
  socket.write(head);
  await once(socket, "data");
  const headers = new HeaderWriter();
  for (const [index, streamtype] of ["error", "stdin", "stdout"].entries()) {
    const syn = Buffer.concat([words(2 * index + 1, 0), Buffer.alloc(2), headers.write({ streamtype })]);
    socket.write(controlFrame(1, 0, syn));
  }
  await once(socket, "data");
  return socket;
}

const input = Buffer.alloc(32 * 1024);

test("exec over WebSocket: a client that vanishes while its input is full ends the command", async () => {
  const exec = new StubbornExec();
  const client = await openWebsocket(await serve(exec));
  for (let sent = 0; sent < 8 * 1024 * 1024; sent += input.length)
    client.send(Buffer.concat([Buffer.from([0]), input]));
  await sleep(200);
  expect(exec.isClosed).toBe(false);
  client.terminate();
  await expect.poll(() => exec.isClosed, { timeout: 8_000 }).toBe(true);
});

test("exec over SPDY: a client that vanishes while its input is full ends the command", async () => {
  const exec = new StubbornExec();
  const client = await openSpdy(await serve(exec));
  for (let sent = 0; sent < 8 * 1024 * 1024; sent += input.length) client.write(dataFrame(3, input, false));
  await sleep(200);
  expect(exec.isClosed).toBe(false);
  client.destroy();
  await expect.poll(() => exec.isClosed, { timeout: 8_000 }).toBe(true);
});

test("exec over WebSocket: a client that vanishes ends a command that neither reads nor writes", async () => {
  const exec = new StubbornExec();
  const client = await openWebsocket(await serve(exec));
  client.terminate();
  await expect.poll(() => exec.isClosed, { timeout: 3_000 }).toBe(true);
});

test("exec over WebSocket: one whose sandbox stands still until its owner resumes it ends with the reason", async () => {
  const held = new AbortController();
  const client = await openWebsocket(await serve(new StubbornExec(), held.signal));
  const messages: Buffer[] = [];
  client.on("message", (message: Buffer) => messages.push(message));
  await sleep(100);
  held.abort(new KubeletError(409, "suspended by its owner"));
  await once(client, "close");
  const said =
    messages
      .find((message) => message[0] === 3)
      ?.subarray(1)
      .toString() ?? "";
  expect(JSON.parse(said)).toMatchObject({
    status: "Failure",
    message: expect.stringContaining("suspended by its owner"),
  });
});

test.each(["WebSocket", "SPDY"])("exec over %s: a client that never reads stops the command's output", async (kind) => {
  const exec = new StubbornExec(256 * 1024 * 1024);
  const port = await serve(exec);
  const client = kind === "SPDY" ? await openSpdy(port) : await openWebsocket(port);
  client.pause();
  await sleep(300);
  const before = exec.made;
  await sleep(200);
  // What the kernel's buffers hold, and not a piece more.
  expect([exec.made, exec.made < 32 * 1024 * 1024]).toEqual([before, true]);
  if (client instanceof WebSocket) client.terminate();
  else client.destroy();
});

test("attach: a client that never reads holds its stream's mark and one piece", async () => {
  let made = 0;
  const sandboxd = partOf<SandboxdClient>({
    get: async () => ({ process: { outputEnd: 0n } }),
    attach: async function* () {
      for (; made < 1_000; made++) {
        await sleep(0);
        yield { event: { case: made % 2 === 0 ? "stdout" : "stderr", value: { data: Buffer.alloc(64 * 1024) } } };
      }
    },
  });
  const gone = new AbortController();
  const stopped = (): Writable => new Writable({ write: () => undefined });
  const [stdout, stderr] = [stopped(), stopped()];
  const remote: RemoteCommand = {
    stdin: undefined,
    stdout,
    stderr,
    onResize: () => undefined,
    signal: gone.signal,
    finish: async () => undefined,
    cut: () => gone.abort(),
  };
  void backendWith(sandboxd).attach({ namespace: "a", pod: "b", container: "main" }, remote);
  await sleep(300);
  expect(made).toBeLessThan(5);
  expect(stdout.writableLength + stderr.writableLength).toBeLessThanOrEqual(256 * 1024);
  stdout.destroy();
  stderr.destroy();
});

/** A node with one running pod, whose daemon is the given one. */
function backendWith(sandboxd: SandboxdClient): NodeBackend {
  const object = { metadata: { uid: "u" }, spec: { containers: [{ name: "main" }] } };
  const record = {
    address: "127.0.0.1",
    isPrepared: true,
    containers: { main: { hostId: "h", process: { argv: [] } } },
  };
  const context = {
    records: { get: () => record },
    exits: { endOf: () => new AbortController().signal },
    sleep: new SleepStates(),
  };
  const options = { context, pods: { get: () => object }, sandboxdAt: () => sandboxd };
  return new NodeBackend(partOf<NodeBackendOptions>(options));
}

test("capture: a command that never ends is ended with its time", async () => {
  const exec = new StubbornExec();
  const runner = new CommandRunner(partOf<Host>({ exec: async () => exec }));
  const target = partOf<CommandTarget>({ hostId: "h", process: { argv: [] } });
  await runner.capture(target, ["sleep"], AbortSignal.timeout(50)).catch(() => undefined);
  expect(exec.isClosed).toBe(true);
});
