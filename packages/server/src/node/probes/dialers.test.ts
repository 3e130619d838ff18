import { once } from "node:events";
import { createServer as createHttpServer, type RequestListener } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { afterEach, expect, test } from "vitest";
import { makeCertificate } from "../../../../../test/node/certificate.ts";
import { networkDialers } from "./dialers.ts";

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

interface Listening {
  listen(port: number, host: string): unknown;
  close(): unknown;
  address(): AddressInfo | string | null;
  once(event: string, listener: () => void): unknown;
}

async function portOf(server: Listening): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server as never, "listening");
  closing.push(() => server.close());
  return (server.address() as AddressInfo).port;
}

const soon = (): AbortSignal => AbortSignal.timeout(2_000);
const check = (scheme: "http" | "https", port: number, path = "/") =>
  networkDialers.http({ scheme, host: "127.0.0.1", port, path, headers: [["x-probe", "1"]] }, soon());

/** Answers with the status that the path names, and only to who sends the probe's header. */
const answer: RequestListener = (request, response) => {
  const status = request.headers["x-probe"] === "1" ? Number(request.url?.slice(1)) : 400;
  response.writeHead(status).write("a body that never ends");
};

test.each([
  ["200", true],
  ["302", true],
  ["404", false],
  ["503", false],
])("networkDialers: HTTP %s: decides by the status alone", async (status, isOk) => {
  const port = await portOf(createHttpServer(answer));
  const result = await check("http", port, `/${status}`);
  expect(result).toEqual({ isOk, message: `HTTP probe failed with statuscode: ${status}` });
});

test("networkDialers: HTTPS: takes any certificate", async () => {
  const { certificate, key } = await makeCertificate("/CN=probe");
  const port = await portOf(createHttpsServer({ cert: certificate, key }, answer));
  expect((await check("https", port, "/200")).isOk).toBe(true);
});

test("networkDialers: nobody listens: rejects, for HTTP and for TCP", async () => {
  const server = createTcpServer();
  const port = await portOf(server);
  expect(await networkDialers.tcp("127.0.0.1", port, soon())).toEqual({ isOk: true, message: "" });
  await new Promise((resolve) => server.close(resolve));
  await expect(check("http", port)).rejects.toThrow("ECONNREFUSED");
  await expect(networkDialers.tcp("127.0.0.1", port, soon())).rejects.toThrow("ECONNREFUSED");
});

test("networkDialers: a server that never answers: the signal ends the check", async () => {
  const port = await portOf(createTcpServer((socket) => closing.push(() => socket.destroy())));
  const question = { scheme: "http", host: "127.0.0.1", port, path: "/", headers: [] } as const;
  await expect(networkDialers.http(question, AbortSignal.timeout(50))).rejects.toThrow();
});

test("networkDialers: a server that holds the rest of its answer back keeps no connection of a probe", async () => {
  const server = createHttpServer(answer);
  const port = await portOf(server);
  for (let tries = 0; tries < 5; tries++) expect((await check("http", port, "/200")).isOk).toBe(true);
  const open = (): Promise<number> =>
    new Promise((resolve) => server.getConnections((_error, count) => resolve(count)));
  await expect.poll(open, { timeout: 4_000 }).toBe(0);
});
