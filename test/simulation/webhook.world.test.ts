import { X509Certificate } from "node:crypto";
import { connect } from "node:tls";
import { customResourceDefinitions, secrets } from "@agent-sandbox/api";
import { createClient } from "@agent-sandbox/kube";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { issueCertificate } from "../../packages/server/src/apiserver/auth/certificate.ts";
import { openConversionWebhook } from "../../packages/server/src/controllers/process/conversion-webhook.ts";
import {
  ensureWebhookCertificates,
  patchConversionCrds,
  type WebhookCertificateOptions,
  webhookSecretName,
} from "../../packages/server/src/controllers/process/webhook-certificates.ts";
import { silentLogger } from "../../packages/server/src/telemetry/logger.ts";
import { everybody, Ground } from "./ground.ts";

const signal = new AbortController().signal;
const namespace = "agent-sandbox-system";
let ground: Ground;
beforeAll(async () => {
  ground = await Ground.open();
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});

async function open(parts: Partial<WebhookCertificateOptions> = {}): Promise<WebhookCertificateOptions> {
  return {
    client: createClient(ground.api.transportFor(everybody)),
    clock: ground.clock,
    logger: silentLogger(),
    issue: issueCertificate,
    randomBytes: (count) => crypto.getRandomValues(new Uint8Array(count)),
    serviceName: "hook",
    namespace,
    clusterDomain: "cluster.local",
    ...parts,
  };
}

describe("webhook certificates in a world", () => {
  test("webhook certificates: K5 made once, with every name, and loaded by the next replica", async () => {
    await ground.clear(1);
    const made = await ensureWebhookCertificates(await open(), signal);
    const leaf = new X509Certificate(made.certificatePem);
    for (const name of ["hook", `hook.${namespace}`, `hook.${namespace}.svc`, `hook.${namespace}.svc.cluster.local`]) {
      expect(leaf.checkHost(name)).toBe(name);
    }
    expect(leaf.verify(new X509Certificate(made.caBundlePem).publicKey)).toBe(true);
    expect((await ensureWebhookCertificates(await open(), signal)).certificatePem).toBe(made.certificatePem);
  });

  test("webhook certificates: core N0c two replicas at once end with one certificate", async () => {
    await ground.clear(2);
    const options = await open();
    const [a, b] = await Promise.all([
      ensureWebhookCertificates(options, signal),
      ensureWebhookCertificates(options, signal),
    ]);
    expect(a.certificatePem).toBe(b.certificatePem);
  });

  test("webhook certificates: renewed in time under the same trust, and at once for other names", async () => {
    await ground.clear(3);
    const first = await ensureWebhookCertificates(await open(), signal);
    const renewed = await ensureWebhookCertificates(await open({ serviceName: "other" }), signal);
    expect(renewed.certificatePem).not.toBe(first.certificatePem);
    expect(renewed.caBundlePem).toBe(first.caBundlePem);
    const later = { nowMs: () => renewed.renewAtMs, setTimer: ground.clock.setTimer.bind(ground.clock) };
    const again = await ensureWebhookCertificates(await open({ serviceName: "other", clock: later }), signal);
    expect(again.certificatePem).not.toBe(renewed.certificatePem);
    expect(again.caBundlePem).toBe(first.caBundlePem);
  });

  test("webhook certificates: K5 a Secret without certificates is refused", async () => {
    await ground.clear(4);
    const options = await open();
    const data = { "ca.crt": "eA==", "tls.crt": "eA==", "tls.key": "eA==" };
    await options.client.create(secrets, {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: webhookSecretName, namespace },
      data,
    });
    await expect(ensureWebhookCertificates(options, signal)).rejects.toThrow("invalid certificate data");
  });

  test("webhook certificates: K5 only CRDs that convert by webhook are patched", async () => {
    const options = await open();
    const name = "sandboxes.agents.x-k8s.io";
    const strategyOf = async () => (await options.client.get(customResourceDefinitions, { name })).spec.conversion;
    const before = await strategyOf();
    await patchConversionCrds(options, "PEM", signal);
    const after = await strategyOf();
    if (before?.strategy === "Webhook")
      expect(after?.webhook?.clientConfig).toMatchObject({
        caBundle: Buffer.from("PEM").toString("base64"),
        service: { name: "hook" },
      });
    else expect(after).toEqual(before);
  });

  test("webhook: serves under a renewed certificate without a restart", async () => {
    await ground.clear(5);
    const first = await ensureWebhookCertificates(await open(), signal);
    await using webhook = await openConversionWebhook({ port: 0, certificate: first, onPanic: () => undefined });
    const renewed = await ensureWebhookCertificates(await open({ serviceName: "other" }), signal);
    webhook.renew(renewed);

    const subject = await new Promise<string>((resolve, reject) => {
      const socket = connect({ port: webhook.port, host: "127.0.0.1", rejectUnauthorized: false }, () => {
        resolve(socket.getPeerX509Certificate()?.subjectAltName ?? "");
        socket.destroy();
      });
      socket.on("error", reject);
    });
    expect(subject).toContain("DNS:other");
  });
});
