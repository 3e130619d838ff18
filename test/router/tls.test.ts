import { once } from "node:events";
import { mkdtempSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import http2 from "node:http2";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import tls from "node:tls";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { KeyAndCertificate } from "../../packages/server/src/apiserver/auth/certificate.ts";
import { TlsFiles } from "../../packages/server/src/router/tls-files.ts";
import { issue } from "../kube/tls-server.ts";
import { readAnswer } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { echo, openUpstream } from "./upstream.ts";

let world: RouterWorld;
const authority = issue("test authority", { kind: "authority" });
const ca = authority.certificatePem;

beforeAll(async () => {
  world = await RouterWorld.open();
  const router = await world.router();
  const address = await world.sandbox(router, "box", { namespace: "ns" });
  await openUpstream(world, { address, port: 8888 }, echo);
  await world.grantConnect("ns", { kind: "User", name: "alice" });
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

function server(name: string): KeyAndCertificate {
  return issue(name, { kind: "server", names: ["127.0.0.1"] }, authority);
}

async function openTls(clientCertificate: "off" | "optional" | "required", tlsOnly = false): Promise<number> {
  const router = await world.router({ access: { mode: clientCertificate === "off" ? "allow-all" : "access-review" } });
  const { certificatePem: cert, privateKeyPem: key } = server("router");
  return router.listen(
    { host: "127.0.0.1", port: 0 },
    { kind: "credentials" },
    { cert, key, ca, clientCertificate },
    { tlsOnly },
  );
}

async function get(port: number, client?: KeyAndCertificate): Promise<{ status: number; text: string }> {
  const request = https.get({
    host: "127.0.0.1",
    port,
    ca,
    agent: false,
    headers: { "X-Sandbox-ID": "box", "X-Sandbox-Namespace": "ns" },
    ...(client !== undefined && { cert: client.certificatePem, key: client.privateKeyPem }),
  });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return readAnswer(response);
}

test("router tls: one port speaks TLS and clear text, HTTP/1.1 and HTTP/2", async () => {
  const port = await openTls("off");
  expect(JSON.parse((await get(port)).text)).toMatchObject({ headers: { "x-forwarded-proto": "https" } });
  const session = http2.connect(`https://127.0.0.1:${port}`, { ca });
  const stream = session.request({ ":path": "/two", "x-sandbox-id": "box", "x-sandbox-namespace": "ns" });
  const [headers] = (await once(stream, "response")) as [http2.IncomingHttpHeaders];
  expect(headers[":status"]).toBe(200);
  stream.resume();
  session.destroy();
  const plain = net.connect(port, "127.0.0.1");
  plain.write("GET /healthz HTTP/1.1\r\nHost: r\r\n\r\n");
  const [chunk] = (await once(plain, "data")) as [Buffer];
  expect(chunk.toString()).toMatch(/^HTTP\/1\.1 200 /);
  plain.destroy();
});

test("router tls: a listener of TLS alone refuses clear text, and nothing below 1.2 passes", async () => {
  const port = await openTls("off", true);
  const plain = net.connect(port, "127.0.0.1");
  plain.write("GET /healthz HTTP/1.1\r\nHost: r\r\n\r\n");
  await once(plain, "close");
  const old = tls.connect({
    host: "127.0.0.1",
    port,
    ca,
    minVersion: "TLSv1.1",
    maxVersion: "TLSv1.1",
    ciphers: "DEFAULT@SECLEVEL=0",
  });
  const [error] = (await once(old, "error")) as [Error];
  expect(error.message).toMatch(/alert|protocol|version/i);
});

test("router tls: a client certificate is an identity that is authorised like any other", async () => {
  const port = await openTls("optional");
  expect((await get(port)).status).toBe(401);
  expect((await get(port, issue("alice", { kind: "client" }, authority))).status).toBe(200);
  expect((await get(port, issue("bob", { kind: "client" }, authority))).status).toBe(403);
  const forged = issue("alice", { kind: "client" }, issue("other authority", { kind: "authority" }));
  expect((await get(port, forged)).status).toBe(401);
});

test("router tls: where certificates are required, a caller without one gets no connection", async () => {
  const port = await openTls("required");
  await expect(get(port)).rejects.toThrow(/alert|socket|ECONNRESET/i);
  const forged = issue("alice", { kind: "client" }, issue("other authority", { kind: "authority" }));
  await expect(get(port, forged)).rejects.toThrow(/alert|socket|ECONNRESET/i);
  expect((await get(port, issue("alice", { kind: "client" }, authority))).status).toBe(200);
});

/** A directory as a kubelet mounts a Secret: files are links through `..data`, which is swapped in one step. */
function secretDirectory(pair: KeyAndCertificate): { directory: string; swap: (next: KeyAndCertificate) => void } {
  const directory = mkdtempSync(path.join(tmpdir(), "router-tls-"));
  let version = 0;
  const write = (next: KeyAndCertificate): string => {
    version += 1;
    const name = mkdtempSync(path.join(directory, `..${version}-`));
    writeFileSync(path.join(name, "tls.crt"), next.certificatePem);
    writeFileSync(path.join(name, "tls.key"), next.privateKeyPem);
    symlinkSync(path.basename(name), path.join(directory, "..data_tmp"));
    renameSync(path.join(directory, "..data_tmp"), path.join(directory, "..data"));
    return name;
  };
  write(pair);
  for (const file of ["tls.crt", "tls.key"]) symlinkSync(`..data/${file}`, path.join(directory, file));
  return { directory, swap: (next) => void write(next) };
}

async function servedName(port: number): Promise<string> {
  const socket = tls.connect({ host: "127.0.0.1", port, ca });
  await once(socket, "secureConnect");
  const name = socket.getPeerCertificate().subject.CN;
  socket.destroy();
  return String(name);
}

test("router tls: a swapped secret is served to later handshakes; a broken one changes nothing", async () => {
  const { directory, swap } = secretDirectory(server("first"));
  const loads: string[] = [];
  using files = new TlsFiles({
    certFile: path.join(directory, "tls.crt"),
    keyFile: path.join(directory, "tls.key"),
    clientCertificate: "off",
    onLoad: (outcome) => loads.push(outcome),
  });
  const router = await world.router();
  const port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" }, files);
  expect(await servedName(port)).toBe("first");
  swap(server("second"));
  await expect.poll(() => servedName(port), { timeout: 5_000 }).toBe("second");
  swap({ certificatePem: "not a certificate", privateKeyPem: "neither" });
  await expect.poll(() => loads.at(-1), { timeout: 5_000 }).toBe("failure");
  expect(await servedName(port)).toBe("second");
  swap(server("third"));
  await expect.poll(() => servedName(port), { timeout: 5_000 }).toBe("third");
  expect(loads).toEqual(["success", "success", "failure", "success"]);
});

test("router tls: files that cannot be used at the start are an error", () => {
  const { directory } = secretDirectory({ certificatePem: "x", privateKeyPem: "y" });
  const open = () =>
    new TlsFiles({
      certFile: path.join(directory, "tls.crt"),
      keyFile: path.join(directory, "tls.key"),
      clientCertificate: "off",
      onLoad: () => undefined,
    });
  expect(open).toThrow();
});
