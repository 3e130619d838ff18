import { X509Certificate } from "node:crypto";
import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, createServer } from "node:tls";
import { afterEach, beforeEach, expect, test } from "vitest";
import { certificateSubject } from "./certificate.ts";
import { type LeafRequest, openPki, renewalDueMs } from "./pki.ts";

const dayMs = 24 * 60 * 60 * 1000;
const nowMs = Date.now();
const serving: LeafRequest = {
  file: "apiserver",
  commonName: "agent-sandbox-apiserver",
  use: { kind: "server", names: ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"] },
};
const admin: LeafRequest = {
  file: "client-admin",
  commonName: "kubernetes-admin",
  organizations: ["system:masters", "ops, team"],
  use: { kind: "client" },
};

let directory = "";
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "pki-"));
});
afterEach(async () => {
  await rm(directory, { recursive: true });
});

test("Pki: every file has mode 0600", async () => {
  const pki = await openPki({ directory, nowMs });
  await pki.leaf(serving, nowMs);
  await pki.serviceAccountKey();
  const modes = await Promise.all(
    (await readdir(directory)).map(async (file) => (await stat(join(directory, file))).mode & 0o777),
  );
  expect(modes).toEqual(modes.map(() => 0o600));
  expect((await stat(directory)).mode & 0o777).toBe(0o700);
});

test("Pki: a second opening gives the same certificates", async () => {
  const first = await openPki({ directory, nowMs });
  const leaf = await first.leaf(serving, nowMs);
  const second = await openPki({ directory, nowMs: nowMs + dayMs });
  expect(second.caBundlePem).toBe(first.caBundlePem);
  expect(await second.leaf(serving, nowMs + dayMs)).toEqual(leaf);
});

test("Pki: a leaf with little life left is replaced", async () => {
  const pki = await openPki({ directory, nowMs });
  const old = await pki.leaf(serving, nowMs);
  const dueMs = renewalDueMs(old.certificatePem);
  expect(await pki.leaf(serving, dueMs - dayMs)).toEqual(old);
  const fresh = await pki.leaf(serving, dueMs + dayMs);
  expect(fresh.certificatePem).not.toBe(old.certificatePem);
});

test("Pki: other names give another serving certificate", async () => {
  const pki = await openPki({ directory, nowMs });
  const old = await pki.leaf(serving, nowMs);
  const fresh = await pki.leaf({ ...serving, use: { kind: "server", names: ["localhost", "10.200.0.1"] } }, nowMs);
  expect(fresh.certificatePem).not.toBe(old.certificatePem);
  expect(new X509Certificate(fresh.certificatePem).checkIP("10.200.0.1")).toBe("10.200.0.1");
});

test("Pki: an authority near its end gets a successor and stays trusted", async () => {
  const first = await openPki({ directory, nowMs });
  const second = await openPki({ directory, nowMs: nowMs + 3000 * dayMs });
  expect(second.caBundlePem.endsWith(first.caBundlePem)).toBe(true);
  expect(second.caBundlePem.length).toBeGreaterThan(first.caBundlePem.length);
});

test("Pki: subjects carry user and groups, commas included", async () => {
  const pki = await openPki({ directory, nowMs });
  const { certificatePem } = await pki.leaf(admin, nowMs);
  expect(certificateSubject(new X509Certificate(certificatePem))).toEqual({
    commonName: "kubernetes-admin",
    organizations: ["system:masters", "ops, team"],
  });
});

test("Pki: a TLS handshake with both certificates succeeds and names the client", async () => {
  const pki = await openPki({ directory, nowMs });
  const [server, client] = [await pki.leaf(serving, nowMs), await pki.leaf(admin, nowMs)];
  const subject = await new Promise((resolve, reject) => {
    const listener = createServer(
      {
        key: server.privateKeyPem,
        cert: server.certificatePem,
        ca: pki.caBundlePem,
        requestCert: true,
        rejectUnauthorized: true,
      },
      (socket) => {
        resolve(socket.getPeerCertificate().subject.CN);
        socket.end();
        listener.close();
      },
    );
    listener.listen(0, "127.0.0.1", () => {
      const { port } = listener.address() as { port: number };
      const options = {
        host: "127.0.0.1",
        port,
        ca: pki.caBundlePem,
        key: client.privateKeyPem,
        cert: client.certificatePem,
      };
      connect(options).on("error", reject).resume();
    });
  });
  expect(subject).toBe("kubernetes-admin");
});
