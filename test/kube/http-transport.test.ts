import { text } from "node:stream/consumers";
import { bearerToken, httpTransport, type KubeResponse, type Transport } from "@agent-sandbox/kube";
import { describe, expect, test } from "vitest";
import { type Exchange, openTlsServer } from "./tls-server.ts";

async function read({ status, body }: KubeResponse): Promise<[number, string]> {
  return [status, await text(body)];
}

const echo = (exchange: Exchange): void => {
  const { method, path, body, version, headers, socket } = exchange;
  const subject = socket.getPeerCertificate().subject?.CN;
  exchange.answer(
    200,
    JSON.stringify({ method, path, body, version, authorization: headers["authorization"], subject }),
  );
};

async function ask(transport: Transport, path = "/x", body?: string): Promise<Record<string, string>> {
  const request = { method: body === undefined ? "GET" : "POST", path, ...(body !== undefined && { body }) };
  const [, answered] = await read(await transport.request(request));
  return JSON.parse(answered) as Record<string, string>;
}

describe.each([
  ["http1", "1.1"],
  ["http2", "2.0"],
] as const)("over %s", (protocol, version) => {
  test(`httpTransport: ${protocol}: negotiates, proves who it is, and carries path, body and token`, async () => {
    await using server = await openTlsServer(protocol, echo);
    const transport = httpTransport({ ...server.credentials, authorize: bearerToken("secret") });
    expect(await ask(transport, "/api?x=1", "hello")).toEqual({
      method: "POST",
      path: "/base/api?x=1",
      body: "hello",
      version,
      authorization: "Bearer secret",
      subject: "client",
    });
    await transport.close();
  });

  test(`httpTransport: ${protocol}: requests one after the other share a connection`, async () => {
    await using server = await openTlsServer(protocol, echo);
    const transport = httpTransport(server.credentials);
    for (let count = 0; count < 5; count += 1) await ask(transport);
    expect(server.connections()).toBe(1);
    await transport.close();
  });

  test(`httpTransport: ${protocol}: an answer is whole however late it is read`, async () => {
    await using server = await openTlsServer(protocol, echo);
    const transport = httpTransport(server.credentials);
    const answers = await Promise.all(
      Array.from({ length: 300 }, async (_, index) => {
        const answer = await transport.request({ method: "GET", path: `/${index}` });
        await new Promise((resolve) => setTimeout(resolve, 20));
        return (JSON.parse((await read(answer))[1]) as { path: string }).path;
      }),
    );
    expect(answers).toEqual(Array.from({ length: 300 }, (_, index) => `/base/${index}`));
    await transport.close();
  });

  test(`httpTransport: ${protocol}: a server that restarted: the next read finds it`, async () => {
    await using server = await openTlsServer(protocol, echo);
    const transport = httpTransport(server.credentials);
    await ask(transport);
    server.dropConnections();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect((await ask(transport))["method"]).toBe("GET");
    await transport.close();
  });

  test(`httpTransport: ${protocol}: a body comes as it is written, and ends when aborted`, async () => {
    await using server = await openTlsServer(protocol, (exchange) => exchange.write("first"));
    const transport = httpTransport(server.credentials);
    const stop = new AbortController();
    const { body } = await transport.request({ method: "GET", path: "/watch", signal: stop.signal });
    const iterator = body[Symbol.asyncIterator]();
    expect(Buffer.from((await iterator.next()).value as Uint8Array).toString()).toBe("first");
    const next = iterator.next();
    stop.abort(new Error("enough"));
    await expect(next).rejects.toThrow();
    await transport.close();
  });

  test(`httpTransport: ${protocol}: aborted before the answer: rejects with the reason`, async () => {
    await using server = await openTlsServer(protocol, () => undefined);
    const transport = httpTransport(server.credentials);
    const stop = new AbortController();
    const request = transport.request({ method: "GET", path: "/", signal: stop.signal });
    setTimeout(() => stop.abort(new Error("enough")), 50);
    await expect(request).rejects.toThrow("enough");
    await transport.close();
  });

  test(`httpTransport: ${protocol}: the connection breaks before the answer: rejects`, async () => {
    await using server = await openTlsServer(protocol, ({ socket }) => socket.destroy());
    const transport = httpTransport(server.credentials);
    await expect(transport.request({ method: "POST", path: "/", body: "x" })).rejects.toThrow();
    await transport.close();
  });

  test(`httpTransport: ${protocol}: upgrade: gives the raw connection`, async () => {
    await using server = await openTlsServer(protocol, echo);
    server.onUpgrade = (headers, socket) => {
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: ${String(headers["upgrade"])}\r\nConnection: Upgrade\r\n\r\nhi`,
      );
      socket.pipe(socket);
    };
    const transport = httpTransport(server.credentials);
    const { headers, stream } = await transport.upgrade({ method: "POST", path: "/exec", protocol: "SPDY/3.1" });
    expect(headers["upgrade"]).toBe("SPDY/3.1");
    const received: string[] = [];
    stream.on("data", (chunk: Buffer) => received.push(chunk.toString()));
    stream.write(" there");
    await expect.poll(() => received.join(""), { timeout: 30_000 }).toBe("hi there");
    stream.destroy();
    await transport.close();
  });
});

test("httpTransport: upgrade refused: rejects with what the server says", async () => {
  const status = JSON.stringify({ kind: "Status", reason: "Forbidden", code: 403, message: "no exec for you" });
  await using server = await openTlsServer("http1", echo);
  server.onUpgrade = (_headers, socket) => {
    socket.end(`HTTP/1.1 403 Forbidden\r\nContent-Length: ${status.length}\r\n\r\n${status}`);
  };
  const transport = httpTransport(server.credentials);
  await expect(transport.upgrade({ method: "GET", path: "/exec", protocol: "websocket" })).rejects.toMatchObject({
    reason: "Forbidden",
    message: "no exec for you",
  });
  await transport.close();
});

test("httpTransport: a certificate of another authority: is refused", async () => {
  await using server = await openTlsServer("http2", echo);
  await using other = await openTlsServer("http2", echo);
  const transport = httpTransport({ ...server.credentials, ca: other.credentials.ca ?? "" });
  await expect(transport.request({ method: "GET", path: "/" })).rejects.toMatchObject({
    code: "SELF_SIGNED_CERT_IN_CHAIN",
  });
  await transport.close();
});

test("httpTransport: nobody listens: rejects, and asks again the next time", async () => {
  const server = await openTlsServer("http2", echo);
  const { credentials } = server;
  await server[Symbol.asyncDispose]();
  const transport = httpTransport(credentials);
  await expect(transport.request({ method: "GET", path: "/" })).rejects.toMatchObject({ code: "ECONNREFUSED" });
  await expect(transport.request({ method: "GET", path: "/" })).rejects.toMatchObject({ code: "ECONNREFUSED" });
  await transport.close();
});
