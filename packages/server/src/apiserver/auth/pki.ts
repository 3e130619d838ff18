import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  X509Certificate,
} from "node:crypto";
import { chmod, mkdir, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { isIP } from "node:net";
import { join } from "node:path";
import ipaddr from "ipaddr.js";
import { type CertificateUse, certificateSubject, issueCertificate, type KeyAndCertificate } from "./certificate.ts";

const dayMs = 24 * 60 * 60 * 1000;
/** Ten years: what kubeadm gives its authorities. */
const authorityLifetimeMs = 3650 * dayMs;
/** A year: what kubeadm gives its leaves; a stolen one does not live for ever. */
const leafLifetimeMs = 365 * dayMs;
/** Clocks of clients may be behind by this much. */
const backdateMs = 5 * 60 * 1000;
/** A certificate is replaced when less than this share of its life is left, so that a yearly restart is enough. */
const renewalShare = 1 / 3;

/** Asks for a leaf certificate; `file` is the base of its two file names. */
export interface LeafRequest {
  readonly file: string;
  readonly commonName: string;
  readonly organizations?: readonly string[];
  readonly use: Exclude<CertificateUse, { kind: "authority" }>;
}

/** What `openPki` needs. */
export interface PkiOptions {
  /** Made with mode 0700; every file in it has mode 0600. */
  readonly directory: string;
  readonly nowMs: number;
}

/** The certificates of one engine, kept as files and reissued before they expire. */
export class Pki {
  readonly #directory: string;
  readonly #authority: KeyAndCertificate;
  /** Every authority that clients should trust, newest first. */
  readonly caBundlePem: string;

  constructor(directory: string, authority: KeyAndCertificate, caBundlePem: string) {
    this.#directory = directory;
    this.#authority = authority;
    this.caBundlePem = caBundlePem;
  }

  /** Returns the leaf from disk, or a fresh one when it is absent, about to expire, of another authority or of other names. */
  async leaf(request: LeafRequest, nowMs: number): Promise<KeyAndCertificate> {
    const kept = await readPair(this.#directory, request.file);
    if (kept !== undefined && this.#isGood(kept, request, nowMs)) return kept;
    const fresh = issueCertificate({
      ...leafLifetime(nowMs),
      commonName: request.commonName,
      organizations: request.organizations ?? [],
      use: request.use,
      serial: randomBytes(16),
      issuer: this.#authority,
    });
    await writePair(this.#directory, request.file, fresh);
    return fresh;
  }

  #isGood(kept: KeyAndCertificate, request: LeafRequest, nowMs: number): boolean {
    const certificate = new X509Certificate(kept.certificatePem);
    const issuer = new X509Certificate(this.#authority.certificatePem);
    if (isDueForRenewal(certificate, nowMs) || !certificate.verify(issuer.publicKey)) return false;
    const subject = certificateSubject(certificate);
    if (subject.commonName !== request.commonName) return false;
    if (subject.organizations.join("\n") !== (request.organizations ?? []).join("\n")) return false;
    return request.use.kind !== "server" || alternativeNames(certificate) === canonicalNames(request.use.names);
  }

  /** The key pair that signs ServiceAccount tokens (ECDSA P-256), made on first use. */
  async serviceAccountKey(): Promise<{ privateKeyPem: string; publicKeyPem: string; keyId: string }> {
    const path = join(this.#directory, "sa.key");
    let privateKeyPem = await readFile(path, "utf8").catch(ignoreMissing);
    if (privateKeyPem === undefined) {
      privateKeyPem = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({
        type: "pkcs8",
        format: "pem",
      }) as string;
      await writeSecret(path, privateKeyPem);
    }
    const publicKey = createPublicKey(createPrivateKey(privateKeyPem));
    const keyId = createHash("sha256")
      .update(publicKey.export({ type: "spki", format: "der" }))
      .digest("base64url");
    return { privateKeyPem, publicKeyPem: publicKey.export({ type: "spki", format: "pem" }) as string, keyId };
  }
}

/** Opens the directory, making the authority on first use and a second one when the first nears its end. */
export async function openPki({ directory, nowMs }: PkiOptions): Promise<Pki> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await chmod(directory, 0o700);
  const authorities = await readAuthorities(directory);
  const trusted = authorities.filter(({ pair }) => validToMs(new X509Certificate(pair.certificatePem)) > nowMs);
  let newest = trusted.at(-1);
  if (newest === undefined || isDueForRenewal(new X509Certificate(newest.pair.certificatePem), nowMs)) {
    const number = (authorities.at(-1)?.number ?? 0) + 1;
    newest = { number, pair: issueAuthority(number, nowMs) };
    await writePair(directory, `ca-${number}`, newest.pair);
    trusted.push(newest);
  }
  const bundle = trusted
    .toReversed()
    .map(({ pair }) => pair.certificatePem)
    .join("");
  await writeSecret(join(directory, "ca.crt"), bundle);
  return new Pki(directory, newest.pair, bundle);
}

function issueAuthority(number: number, nowMs: number): KeyAndCertificate {
  return issueCertificate({
    commonName: `agent-sandbox-ca-${number}`,
    use: { kind: "authority" },
    notBeforeMs: nowMs - backdateMs,
    notAfterMs: nowMs + authorityLifetimeMs,
    serial: randomBytes(16),
  });
}

async function readAuthorities(directory: string): Promise<{ number: number; pair: KeyAndCertificate }[]> {
  const numbers = (await readdir(directory))
    .map((file) => /^ca-(\d+)\.key$/.exec(file)?.[1])
    .filter((digits) => digits !== undefined)
    .map(Number)
    .sort((a, b) => a - b);
  const found: { number: number; pair: KeyAndCertificate }[] = [];
  for (const number of numbers) {
    const pair = await readPair(directory, `ca-${number}`);
    if (pair !== undefined) found.push({ number, pair });
  }
  return found;
}

function leafLifetime(nowMs: number): { notBeforeMs: number; notAfterMs: number } {
  return { notBeforeMs: nowMs - backdateMs, notAfterMs: nowMs + leafLifetimeMs };
}

function validToMs(certificate: X509Certificate): number {
  return Date.parse(certificate.validTo);
}

/** Whether less than a third of the certificate's life is left. */
function isDueForRenewal(certificate: X509Certificate, nowMs: number): boolean {
  return nowMs > renewalDueMs(certificate.toString());
}

/** When a certificate should be asked for anew; a process that runs longer sets a timer for it. */
export function renewalDueMs(certificatePem: string): number {
  const certificate = new X509Certificate(certificatePem);
  const lifetimeMs = validToMs(certificate) - Date.parse(certificate.validFrom);
  return validToMs(certificate) - lifetimeMs * renewalShare;
}

function alternativeNames(certificate: X509Certificate): string {
  const names = (certificate.subjectAltName ?? "").split(", ").map((entry) => entry.replace(/^(DNS|IP Address):/, ""));
  return canonicalNames(names);
}

/** Addresses have several spellings; the longest one is the same for all of them. */
function canonicalNames(names: readonly string[]): string {
  const canonical = names.map((name) => (isIP(name) === 0 ? name : ipaddr.parse(name).toNormalizedString()));
  return canonical.sort().join(",");
}

/** A pair counts only when both files are there: the key is written first, so a crash leaves a key alone, which is replaced. */
async function readPair(directory: string, file: string): Promise<KeyAndCertificate | undefined> {
  const certificatePem = await readFile(join(directory, `${file}.crt`), "utf8").catch(ignoreMissing);
  const privateKeyPem = await readFile(join(directory, `${file}.key`), "utf8").catch(ignoreMissing);
  if (certificatePem === undefined || privateKeyPem === undefined) return undefined;
  const belongs = new X509Certificate(certificatePem).checkPrivateKey(createPrivateKey(privateKeyPem));
  return belongs ? { certificatePem, privateKeyPem } : undefined;
}

async function writePair(directory: string, file: string, pair: KeyAndCertificate): Promise<void> {
  await writeSecret(join(directory, `${file}.key`), pair.privateKeyPem);
  await writeSecret(join(directory, `${file}.crt`), pair.certificatePem);
}

/** Writes a file that only its owner can read, in one step: readers see the old or the new text, never a part. */
export async function writeSecret(path: string, text: string): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  await writeFile(temporary, text, { mode: 0o600, flush: true });
  await chmod(temporary, 0o600);
  await rename(temporary, path);
}

function ignoreMissing(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
  throw error;
}
