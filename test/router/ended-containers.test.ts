import { once } from "node:events";
import http from "node:http";
import { sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call } from "./http-call.ts";
import { RouterWorld, until } from "./router-world.ts";
import { openRawUpstream, openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter & { metrics: { metrics(): Promise<string> } };
let port: number;

beforeAll(async () => {
  world = await RouterWorld.open();
  router = await world.router();
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const to = (name: string) => ({ headers: { "X-Sandbox-ID": name } });

/** Writes what the controller writes when all containers of a Pod have ended; the Pod is starting again, or runs already. */
async function end(name: string, run: string, status: "True" | "False", podIPs?: readonly string[]): Promise<void> {
  const at = "2026-01-01T00:00:01Z";
  const ready = { type: "Ready", status, reason: "DependenciesReady", message: "", lastTransitionTime: at };
  const message = `container main ended with exit code 137 (OOMKilled, run ${run})`;
  const ended = { type: "ContainerEnded", status: "True", reason: "Ended", message, lastTransitionTime: at };
  await world.admin.patch(
    sandboxes,
    { namespace: "default", name },
    { type: "merge", body: { status: { conditions: [ready, ended], ...(podIPs && { podIPs }) } } },
    { subresource: "status" },
  );
}

async function underWay(count: number): Promise<void> {
  await until(async () => new RegExp(`inflight_requests ${count}\n`).test(await router.metrics.metrics()));
}

/** The answer of a sandbox that has sent its head and the first byte, and goes on sending. */
async function streamingAnswer(headers: Record<string, string>): Promise<http.IncomingMessage> {
  const request = http.request({ port, path: "/streaming", headers });
  const [answer] = (await once(request.end(), "response")) as [http.IncomingMessage];
  return answer;
}

test.each(["True", "False"] as const)(
  "router: what is open to containers that ended is cut at once, Ready being %s (G23)",
  async (status) => {
    const name = `killed-${status.toLowerCase()}`;
    const address = await world.sandbox(router, name);
    // It keeps its connections and says nothing more, as a sandbox does whose runtime was killed.
    await openRawUpstream(world, { address, port: 8888 }, (socket) => {
      socket.once("data", (head: Buffer) => {
        if (head.includes("/streaming"))
          socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
      });
    });
    const streaming = await streamingAnswer(to(name).headers);
    const cut = once(streaming, "error");
    streaming.resume();
    const unanswered = call(port, "/unanswered", { ...to(name), method: "POST", body: "x" });
    await underWay(2);
    const startMs = performance.now();
    await end(name, "one", status);
    expect(await cut).toMatchObject([{ code: "ECONNRESET" }]);
    expect(await unanswered).toMatchObject({ status: 502 });
    // Keep-alive would take five seconds and more.
    expect(performance.now() - startMs).toBeLessThan(2_000);
  },
);

/** Opens a WebSocket to a server at the address that sends back what it gets. */
async function openEcho(name: string, address: string): Promise<() => Promise<WebSocket>> {
  const http = await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end());
  const server = new WebSocketServer({ server: http });
  server.on("connection", (socket) => socket.on("message", (text) => socket.send(text)));
  return async () => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/`, to(name));
    await once(socket, "open");
    return socket;
  };
}

async function echoes(socket: WebSocket): Promise<void> {
  socket.send("still here");
  const [message] = (await once(socket, "message")) as [Buffer];
  expect(message.toString()).toBe("still here");
}

test("router: the end of containers cuts nothing at an address that the sandbox has lost (G23)", async () => {
  const address = await world.sandbox(router, "moved");
  const socket = await (await openEcho("moved", address))();
  const next = world.address();
  await end("moved", "one", "True", [next]);
  await until(() => router.table.get("default", "moved")?.podAddresses[0] === next);
  await echoes(socket);
  socket.terminate();
});

test("router: a second end within the same second is told from the first, and a status without a new end cuts nothing (G23)", async () => {
  const address = await world.sandbox(router, "twice");
  const open = await openEcho("twice", address);
  await end("twice", "one", "True");
  await until(() => router.table.get("default", "twice")?.containerEnd?.includes("run one") === true);
  const socket = await open();
  await world.admin.patch(
    sandboxes,
    { namespace: "default", name: "twice" },
    { type: "merge", body: { metadata: { labels: { other: "change" } } } },
  );
  await echoes(socket);
  const closed = once(socket, "close");
  await end("twice", "two", "True");
  await closed;
});
