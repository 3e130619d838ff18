import { X509Certificate } from "node:crypto";
import type { Secret } from "@agent-sandbox/api";
import { customResourceDefinitions, ignore, isReasonOf, secrets } from "@agent-sandbox/api";
import type { Client, Clock } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";

/** A certificate with its key, both PEM. */
export interface IssuedCertificate {
  readonly certificatePem: string;
  readonly privateKeyPem: string;
}

/** Makes keys and certificates; main passes the engine's own. */
export type CertificateIssuer = (request: {
  readonly commonName: string;
  readonly use: { readonly kind: "authority" } | { readonly kind: "server"; readonly names: readonly string[] };
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly serial: Uint8Array;
  readonly issuer?: IssuedCertificate;
}) => IssuedCertificate;

/** What the webhook serves with, and what API servers must trust. */
export interface WebhookCertificates extends IssuedCertificate {
  readonly caBundlePem: string;
  /** When it must be renewed. */
  readonly renewAtMs: number;
}

/** Where the webhook is and where its certificate is kept. */
export interface WebhookCertificateOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly issue: CertificateIssuer;
  readonly randomBytes: (count: number) => Uint8Array;
  readonly serviceName: string;
  readonly namespace: string;
  readonly clusterDomain: string;
}

/** The Secret all replicas share. Exported for tests. */
export const webhookSecretName = "agent-sandbox-webhook-certs";
const authorityName = "agent-sandbox-conversion-webhook-ca";
const yearMs = 365 * 24 * 3_600_000;
/** Issued certificates begin in the past, because clocks differ. */
const skewMs = 3_600_000;
/** Renewal begins when a third of the life is left: months for an operator to notice that it fails. */
const renewFraction = 2 / 3;

/** Loads the shared certificate, or makes it, or renews it; of several replicas one wins and the others take its result. */
export async function ensureWebhookCertificates(
  options: WebhookCertificateOptions,
  signal: AbortSignal,
): Promise<WebhookCertificates> {
  const { client, namespace } = options;
  for (;;) {
    const key = { namespace, name: webhookSecretName };
    const present = await client.get(secrets, key, { signal }).catch(ignore("NotFound"));
    const usable = present === undefined ? undefined : readSecret(present, options);
    if (usable !== undefined) return usable;
    const renewed = issueSecret(options, present);
    try {
      if (present === undefined) await client.create(secrets, renewed, { signal });
      else await client.update(secrets, renewed, { signal });
    } catch (error) {
      // Another replica was quicker: what it wrote is as good.
      if (!isReasonOf(error, "AlreadyExists") && !isReasonOf(error, "Conflict")) throw error;
    }
  }
}

/** The names the webhook answers to. */
function webhookNames({ serviceName, namespace, clusterDomain }: WebhookCertificateOptions): string[] {
  const base = `${serviceName}.${namespace}`;
  return [serviceName, base, `${base}.svc`, `${base}.svc.${clusterDomain}`];
}

/** Undefined when it is due for renewal or made for other names; a Secret that is no certificate at all is fatal. */
function readSecret(secret: Secret, options: WebhookCertificateOptions): WebhookCertificates | undefined {
  const [caBundlePem, certificatePem, privateKeyPem] = ["ca.crt", "tls.crt", "tls.key"].map((key) => pem(secret, key));
  if (caBundlePem === undefined || certificatePem === undefined || privateKeyPem === undefined) {
    throw new Error(`secret "${webhookSecretName}" has invalid certificate data; delete it to have it made anew`);
  }
  const certificate = new X509Certificate(certificatePem);
  const renewAtMs = renewalTimeMs(certificate);
  const named = webhookNames(options).every((name) => certificate.checkHost(name) !== undefined);
  if (options.clock.nowMs() >= renewAtMs || !named) return undefined;
  return { caBundlePem, certificatePem, privateKeyPem, renewAtMs };
}

function renewalTimeMs(certificate: X509Certificate): number {
  const [fromMs, toMs] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
  return fromMs + (toMs - fromMs) * renewFraction;
}

function pem(secret: Secret, key: string): string | undefined {
  const text = Buffer.from(secret.data?.[key] ?? "", "base64").toString();
  return text.includes("-----BEGIN ") ? text : undefined;
}

/** With the authority's key a renewal keeps the trust; without it a new authority is trusted beside the old one. */
function issueSecret(options: WebhookCertificateOptions, present: Secret | undefined): Secret {
  const { clock, issue, randomBytes, namespace } = options;
  const notBeforeMs = clock.nowMs() - skewMs;
  const life = { notBeforeMs, notAfterMs: clock.nowMs() + yearMs };
  const kept = present === undefined ? undefined : keptAuthority(present, life.notAfterMs);
  const authority =
    kept ??
    issue({
      commonName: authorityName,
      use: { kind: "authority" },
      notBeforeMs,
      notAfterMs: clock.nowMs() + 10 * yearMs,
      serial: randomBytes(16),
    });
  const names = webhookNames(options);
  const leaf = issue({
    commonName: names[2] ?? "",
    use: { kind: "server", names },
    ...life,
    serial: randomBytes(16),
    issuer: authority,
  });
  const old = present === undefined ? undefined : pem(present, "ca.crt");
  const bundle =
    old === undefined || old.includes(authority.certificatePem.trim())
      ? (old ?? authority.certificatePem)
      : `${authority.certificatePem}${old}`;
  const encode = (text: string): string => Buffer.from(text).toString("base64");
  return {
    apiVersion: "v1",
    kind: "Secret",
    metadata: present?.metadata ?? { name: webhookSecretName, namespace },
    type: "Opaque",
    data: {
      "ca.crt": encode(bundle),
      "ca.key": encode(authority.privateKeyPem),
      "tls.crt": encode(leaf.certificatePem),
      "tls.key": encode(leaf.privateKeyPem),
    },
  };
}

/** The authority of an earlier term, if its key was kept and it outlives what it would sign. */
function keptAuthority(secret: Secret, untilMs: number): IssuedCertificate | undefined {
  const privateKeyPem = pem(secret, "ca.key");
  const certificatePem = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n?/.exec(
    pem(secret, "ca.crt") ?? "",
  )?.[0];
  if (privateKeyPem === undefined || certificatePem === undefined) return undefined;
  return Date.parse(new X509Certificate(certificatePem).validTo) >= untilMs
    ? { certificatePem, privateKeyPem }
    : undefined;
}

/** The CRDs whose conversions the webhook serves. */
const convertedCrds = [
  "sandboxes.agents.x-k8s.io",
  "sandboxclaims.extensions.agents.x-k8s.io",
  "sandboxtemplates.extensions.agents.x-k8s.io",
  "sandboxwarmpools.extensions.agents.x-k8s.io",
] as const;

/** Points every CRD that converts by webhook at ours; absent ones and other strategies are skipped. */
export async function patchConversionCrds(
  { client, serviceName, namespace }: WebhookCertificateOptions,
  caBundlePem: string,
  signal: AbortSignal,
): Promise<void> {
  for (const name of convertedCrds) {
    const crd = await client.get(customResourceDefinitions, { name }, { signal }).catch(ignore("NotFound"));
    const conversion = crd?.spec.conversion;
    if (conversion?.strategy !== "Webhook") continue;
    const versions = conversion.webhook?.conversionReviewVersions ?? [];
    const clientConfig = {
      service: { name: serviceName, namespace, path: "/convert" },
      caBundle: Buffer.from(caBundlePem).toString("base64"),
    };
    const webhook = { clientConfig, ...(versions.length === 0 ? { conversionReviewVersions: ["v1", "v1beta1"] } : {}) };
    const body = { spec: { conversion: { webhook } } };
    await client.patch(customResourceDefinitions, { name }, { type: "merge", body }, { signal });
  }
}
