import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, sign, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import ipaddr from "ipaddr.js";
import type { CertificateSubject } from "./authenticator.ts";
import {
  bitString,
  booleanTrue,
  certificateTime,
  explicit,
  implicit,
  integer,
  objectIdentifier,
  octetString,
  sequence,
  setOf,
  utf8String,
} from "./der.ts";

/** A certificate with the private key that belongs to it. */
export interface KeyAndCertificate {
  readonly certificatePem: string;
  readonly privateKeyPem: string;
}

/** What a certificate is good for. */
export type CertificateUse =
  | { readonly kind: "authority" }
  | { readonly kind: "server" /** DNS names and IP addresses. */; readonly names: readonly string[] }
  | { readonly kind: "client" };

/** Everything that goes into a certificate; randomness and time are arguments. */
export interface CertificateRequest {
  readonly commonName: string;
  readonly organizations?: readonly string[];
  readonly use: CertificateUse;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** Sixteen random bytes. */
  readonly serial: Uint8Array;
  /** Undefined signs with its own key: an authority. */
  readonly issuer?: KeyAndCertificate;
}

const oid = {
  commonName: "2.5.4.3",
  organization: "2.5.4.10",
  ecdsaWithSha256: "1.2.840.10045.4.3.2",
  basicConstraints: "2.5.29.19",
  keyUsage: "2.5.29.15",
  extendedKeyUsage: "2.5.29.37",
  serverAuth: "1.3.6.1.5.5.7.3.1",
  clientAuth: "1.3.6.1.5.5.7.3.2",
  subjectAltName: "2.5.29.17",
  subjectKeyId: "2.5.29.14",
  authorityKeyId: "2.5.29.35",
} as const;

const signatureAlgorithm = sequence(objectIdentifier(oid.ecdsaWithSha256));

/** Makes an ECDSA P-256 key and a certificate for it (X.509 v3). */
export function issueCertificate(request: CertificateRequest): KeyAndCertificate {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const privateKeyPem = privateKey.export({ type: "pkcs8", format: "pem" }) as string;
  const issuerKeyPem = request.issuer?.privateKeyPem ?? privateKeyPem;
  const toBeSigned = tbsCertificate(request, publicKey);
  const signature = sign("sha256", toBeSigned, issuerKeyPem);
  const der = sequence(toBeSigned, signatureAlgorithm, bitString(signature));
  return { certificatePem: toPem("CERTIFICATE", der), privateKeyPem };
}

function tbsCertificate(request: CertificateRequest, publicKey: KeyObject): Buffer {
  const subject = distinguishedName(request.commonName, request.organizations ?? []);
  const issuer = request.issuer === undefined ? undefined : new X509Certificate(request.issuer.certificatePem);
  return sequence(
    explicit(0, integer(Buffer.from([2]))),
    integer(Buffer.concat([Buffer.from([0x40 | ((request.serial[0] ?? 0) & 0x3f)]), request.serial.subarray(1)])),
    signatureAlgorithm,
    issuer === undefined ? subject : subjectOf(request.issuer as KeyAndCertificate),
    sequence(certificateTime(request.notBeforeMs), certificateTime(request.notAfterMs)),
    subject,
    spki(publicKey),
    explicit(3, sequence(...extensions(request, publicKey, issuer?.publicKey ?? publicKey))),
  );
}

function spki(key: KeyObject): Buffer {
  return key.export({ type: "spki", format: "der" }) as Buffer;
}

function distinguishedName(commonName: string, organizations: readonly string[]): Buffer {
  const parts = organizations.map((name) => setOf(sequence(objectIdentifier(oid.organization), utf8String(name))));
  return sequence(...parts, setOf(sequence(objectIdentifier(oid.commonName), utf8String(commonName))));
}

/** An authority's subject is rebuilt from its own name, which this module wrote with a common name only. */
function subjectOf(authority: KeyAndCertificate): Buffer {
  const name = certificateSubject(new X509Certificate(authority.certificatePem));
  return distinguishedName(name.commonName, name.organizations);
}

function extensions(request: CertificateRequest, key: KeyObject, issuerKey: KeyObject): Buffer[] {
  const { use } = request;
  const isAuthority = use.kind === "authority";
  const keyId = keyIdentifier(key);
  const parts = [
    extension(oid.basicConstraints, sequence(...(isAuthority ? [booleanTrue] : [])), true),
    // keyCertSign and cRLSign for an authority, digitalSignature for everybody else.
    extension(oid.keyUsage, isAuthority ? bitString(Buffer.from([0x06]), 1) : bitString(Buffer.from([0x80]), 7), true),
    extension(oid.subjectKeyId, octetString(keyId)),
    extension(oid.authorityKeyId, sequence(implicit(0, keyIdentifier(issuerKey)))),
  ];
  if (use.kind === "server") {
    parts.push(extension(oid.extendedKeyUsage, sequence(objectIdentifier(oid.serverAuth))));
    parts.push(extension(oid.subjectAltName, sequence(...use.names.map(alternativeName))));
  }
  if (use.kind === "client") parts.push(extension(oid.extendedKeyUsage, sequence(objectIdentifier(oid.clientAuth))));
  return parts;
}

function extension(id: string, value: Buffer, critical = false): Buffer {
  return sequence(objectIdentifier(id), ...(critical ? [booleanTrue] : []), octetString(value));
}

function alternativeName(name: string): Buffer {
  if (isIP(name) !== 0) return implicit(7, Buffer.from(ipaddr.parse(name).toByteArray()));
  return implicit(2, Buffer.from(name, "latin1"));
}

function keyIdentifier(key: KeyObject): Buffer {
  const publicKey = key.type === "public" ? key : createPublicKey(key);
  return createHash("sha256").update(spki(publicKey)).digest().subarray(0, 20);
}

/** The user (CN) and groups (O) that a certificate names. */
export function certificateSubject(certificate: X509Certificate): CertificateSubject {
  return subjectOfPeer(certificate.toLegacyObject().subject);
}

/** The same from what a TLS socket tells about its peer (`getPeerCertificate().subject`). */
export function subjectOfPeer(subject: NodeJS.Dict<string | string[]> | undefined): CertificateSubject {
  const valuesOf = (name: string) => [subject?.[name] ?? []].flat();
  return { commonName: valuesOf("CN").at(-1) ?? "", organizations: valuesOf("O") };
}

function toPem(label: string, der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ""].join("\n");
}
