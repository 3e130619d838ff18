import type { ConnectionOptions, TLSSocket } from "node:tls";
import type { Credentials } from "./credentials.ts";

/** The host and port of a server's address, brackets of an IPv6 address removed. */
export function addressOf({ server }: Credentials): { host: string; port: number; secure: boolean } {
  const { hostname, port, protocol } = new URL(server);
  const secure = protocol === "https:";
  return { host: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? (secure ? 443 : 80) : Number(port), secure };
}

/** What TLS needs to know, for `tls.connect` and `https.Agent` alike. */
export function tlsOptions(credentials: Credentials): ConnectionOptions {
  const { ca, cert, key, serverName, insecureSkipTlsVerify } = credentials;
  const { host } = addressOf(credentials);
  const { isIP } = process.getBuiltinModule("node:net");
  const name = serverName ?? (isIP(host) === 0 ? host : undefined);
  return {
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
    ...(name !== undefined && { servername: name }),
    ...(insecureSkipTlsVerify === true && { rejectUnauthorized: false }),
    minVersion: "TLSv1.2",
  };
}

/** Long enough for a handshake across the world on a bad day; then the address is as good as dead. */
const handshakeTimeoutMs = 10_000;

/** Opens a TLS connection that offers `protocols`. */
export function connectTls(credentials: Credentials, protocols: readonly string[]): Promise<TLSSocket> {
  const { host, port } = addressOf(credentials);
  return new Promise((resolve, reject) => {
    const socket = process
      .getBuiltinModule("node:tls")
      .connect({ ...tlsOptions(credentials), host, port, ALPNProtocols: [...protocols] });
    socket.setTimeout(handshakeTimeoutMs, () => {
      socket.destroy(new Error(`no TLS handshake with ${host}:${port} within ${handshakeTimeoutMs} ms`));
    });
    socket.once("error", reject);
    socket.once("secureConnect", () => {
      socket.setTimeout(0);
      socket.setNoDelay(true);
      socket.setKeepAlive(true, keepAliveMs);
      socket.off("error", reject);
      resolve(socket);
    });
  });
}

/** As in client-go: a peer that went away without closing the connection is noticed within minutes, also on an idle watch. */
export const keepAliveMs = 30_000;
