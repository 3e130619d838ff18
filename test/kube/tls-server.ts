import { randomBytes } from "node:crypto";
import { createSecureServer, type Http2SecureServer } from "node:http2";
import { createServer as createHttpsServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Credentials } from "@agent-sandbox/kube";
import {
  type CertificateUse,
  issueCertificate,
  type KeyAndCertificate,
} from "../../packages/server/src/apiserver/auth/certificate.ts";

const dayMs = 86_400_000;

/** Certificates that are good for an hour of tests on this machine. */
export function issue(commonName: string, use: CertificateUse, issuer?: KeyAndCertificate): KeyAndCertificate {
  return issueCertificate({
    commonName,
    use,
    serial: randomBytes(16),
    notBeforeMs: Date.now() - dayMs,
    notAfterMs: Date.now() + dayMs,
    ...(issuer !== undefined && { issuer }),
  });
}

/** What a handler sees, whatever the protocol. */
export interface Exchange {
  readonly method: string;
  readonly path: string;
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly version: string;
  readonly socket: TLSSocket;
  readonly body: string;
  answer(status: number, body?: string): void;
  write(part: string): void;
}

/** A TLS server on a port of its own. */
export interface TlsServer extends AsyncDisposable {
  readonly credentials: Credentials;
  readonly connections: () => number;
  /** Ends every connection, as a restart does. */
  readonly dropConnections: () => void;
  onUpgrade?: (headers: NodeJS.Dict<string | string[]>, socket: Duplex) => void;
}

/** Starts a server that wants a client certificate and offers the protocols given. */
export async function openTlsServer(
  protocols: "http1" | "http2",
  handle: (exchange: Exchange) => void,
): Promise<TlsServer> {
  const authority = issue("test authority", { kind: "authority" });
  const { certificatePem: cert, privateKeyPem: key } = issue(
    "server",
    { kind: "server", names: ["127.0.0.1"] },
    authority,
  );
  const client = issue("client", { kind: "client" }, authority);
  const options = { cert, key, ca: authority.certificatePem, requestCert: true, rejectUnauthorized: true };
  const server: Http2SecureServer | Server =
    protocols === "http2" ? createSecureServer({ ...options, allowHTTP1: true }) : createHttpsServer(options);
  const sockets = new Set<TLSSocket>();
  let accepted = 0;
  server.on("secureConnection", (socket: TLSSocket) => {
    accepted += 1;
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  // Both servers give the same request and response through the compatibility layer.
  (server as Server).on("request", (request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => (body += chunk.toString()));
    request.on("end", () =>
      handle({
        method: request.method ?? "",
        path: request.url ?? "",
        headers: request.headers,
        version: request.httpVersion,
        socket: request.socket as TLSSocket,
        body,
        answer: (status, text = "") => response.writeHead(status).end(text),
        write: (part) => response.write(part),
      }),
    );
  });
  const opened: TlsServer = {
    credentials: { server: "", ca: authority.certificatePem, cert: client.certificatePem, key: client.privateKeyPem },
    connections: () => accepted,
    dropConnections: () => {
      for (const socket of sockets) socket.destroy();
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  server.on("upgrade", (request: { headers: NodeJS.Dict<string | string[]> }, socket: Duplex) => {
    opened.onUpgrade?.(request.headers, socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return Object.assign(opened, { credentials: { ...opened.credentials, server: `https://127.0.0.1:${port}/base` } });
}
