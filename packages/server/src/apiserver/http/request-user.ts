import type { IncomingHttpHeaders } from "node:http";
import type { TLSSocket } from "node:tls";
import type { Authenticator, CertificateSubject, Credentials } from "../auth/authenticator.ts";
import type { Authorizer } from "../auth/authorizer.ts";
import { subjectOfPeer } from "../auth/certificate.ts";
import { impersonatedUser } from "../auth/impersonation.ts";
import type { UserInfo } from "../request/user-info.ts";

/** Who checks callers. */
export interface CallerChecks {
  readonly authenticator: Authenticator;
  readonly authorizer: Authorizer;
}

/** The user a request acts as; throws ApiError Unauthorized or Forbidden. */
export async function requestUser(
  { authenticator, authorizer }: CallerChecks,
  socket: TLSSocket,
  headers: IncomingHttpHeaders,
): Promise<UserInfo> {
  const caller = await authenticator.authenticate(credentialsOf(socket, headers));
  return impersonatedUser(headers, caller, authorizer);
}

function credentialsOf(socket: TLSSocket, headers: IncomingHttpHeaders): Credentials {
  const bearerToken = tokenOf(headers);
  const certificate = certificateOf(socket);
  if (bearerToken === undefined && certificate === undefined) return { kind: "none" };
  return {
    kind: "presented",
    ...(certificate === undefined ? {} : { certificate }),
    ...(bearerToken === undefined ? {} : { bearerToken }),
  };
}

const protocolPrefix = "base64url.bearer.authorization.k8s.io.";

/** Browsers cannot set headers on a WebSocket, so a token may also travel as a subprotocol. */
function tokenOf(headers: IncomingHttpHeaders): string | undefined {
  const match = /^bearer +(.+)$/i.exec(headers.authorization ?? "");
  if (match !== null) return match[1]?.trim();
  const protocols = (headers["sec-websocket-protocol"] ?? "").split(",").map((protocol) => protocol.trim());
  const encoded = protocols.find((protocol) => protocol.startsWith(protocolPrefix));
  return encoded === undefined ? undefined : Buffer.from(encoded.slice(protocolPrefix.length), "base64url").toString();
}

const subjects = new WeakMap<TLSSocket, CertificateSubject | null>();

/** The subject of a certificate that our authority signed; read once per connection. */
function certificateOf(socket: TLSSocket): CertificateSubject | undefined {
  const known = subjects.get(socket);
  if (known !== undefined) return known ?? undefined;
  const subject = socket.authorized ? subjectOfPeer(socket.getPeerCertificate()?.subject as never) : null;
  const found = subject !== null && subject.commonName !== "" ? subject : null;
  subjects.set(socket, found);
  return found ?? undefined;
}
