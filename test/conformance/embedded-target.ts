import { mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { createClient, systemClock } from "@agent-sandbox/kube";
import { quotaUsed } from "../../packages/server/src/apiserver/admission/quota-usage.ts";
import { ApiServer } from "../../packages/server/src/apiserver/api-server.ts";
import { openSecretBox } from "../../packages/server/src/apiserver/auth/aes-gcm-secret-box.ts";
import { adminUser, componentUser, systemNamespace } from "../../packages/server/src/apiserver/auth/components.ts";
import { writeKubeconfig } from "../../packages/server/src/apiserver/auth/kubeconfig.ts";
import { openPki, type Pki } from "../../packages/server/src/apiserver/auth/pki.ts";
import { createSecurity } from "../../packages/server/src/apiserver/auth/security.ts";
import { applyBootstrap, readOwnCrds } from "../../packages/server/src/main/bootstrap.ts";
import { standins } from "../../packages/server/src/standins/standins.ts";
import { openStore } from "../../packages/server/src/store/sqlite-store.ts";
import { createLogger } from "../../packages/server/src/telemetry/logger.ts";
import { createMetricsRegistry } from "../../packages/server/src/telemetry/metrics.ts";
import type { Target } from "./suite.ts";

/** Ours, as `up` assembles it, without nodes: a store on disk, security, stand-ins, TLS on loopback. */
export interface EmbeddedTarget extends Target {
  /** Of a member of system:masters. */
  readonly kubeconfig: string;
  readonly api: ApiServer;
  readonly caPem: string;
  /** A kubeconfig for another user. */
  kubeconfigFor(user: string, groups: readonly string[]): Promise<string>;
  /** Forgets every event so far. */
  compact(): Promise<void>;
}

/** Starts it; dispose it to stop everything and remove the files. */
export async function openEmbeddedTarget(): Promise<EmbeddedTarget> {
  const dir = await mkdtemp(path.join(os.tmpdir(), "agent-sandbox-embedded-"));
  const clock = systemClock;
  const logger = createLogger({ component: "conformance", level: process.env["CONFORMANCE_LOG"] ?? "silent" });
  const pki = await openPki({ directory: path.join(dir, "pki"), nowMs: clock.nowMs() });
  const store = openStore({ path: path.join(dir, "store.sqlite"), clock });
  const serviceAccountKey = await pki.serviceAccountKey();
  const security = createSecurity({ clock, random: Math.random, serviceAccountKey, addresses: "10.200.0.0/16" });
  const secretBox = await openSecretBox(path.join(dir, "pki/secrets.key"));
  const { authenticator, authorizer, admission, virtualResources, tokens: tokenIssuer } = security;
  const parts = { authenticator, authorizer, admission, virtualResources, tokenIssuer, secretBox };
  const api = new ApiServer({ store, clock, logger, ...parts });
  const attached = await security.attach(api.parts);
  await api.installCrds(readOwnCrds());
  await applyBootstrap(createClient(api.transportFor(adminUser)));
  const names = ["127.0.0.1", "localhost"];
  const leaf = await pki.leaf(
    { file: "apiserver", commonName: "apiserver", use: { kind: "server", names } },
    Date.now(),
  );
  const tls = { certificate: leaf.certificatePem, key: leaf.privateKeyPem, clientCa: pki.caBundlePem };
  const listener = await api.listen({ host: "127.0.0.1", port: 0, tls });
  const stop = new AbortController();
  const running = standins({
    client: createClient(api.transportFor(componentUser("agent-sandbox-standins"))),
    clock,
    logger,
    metrics: createMetricsRegistry(),
    caBundlePem: pki.caBundlePem,
    router: { systemNamespace, address: "127.0.0.1" },
    quotaUsed,
  }).run(stop.signal);
  const server = `https://127.0.0.1:${listener.port}`;
  const issue = (user: string, groups: readonly string[]) => issueKubeconfig({ dir, pki, server }, user, groups);
  const { file: kubeconfig, credentials } = await issue(adminUser.username, ["system:masters"]);
  return {
    api,
    kubeconfig,
    caPem: pki.caBundlePem,
    kubeconfigFor: async (user, groups) => (await issue(user, groups)).file,
    compact: async () => void (await store.compact(store.revision)),
    admin: { server, ca: pki.caBundlePem, cert: credentials.certificatePem, key: credentials.privateKeyPem },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
      await listener.close();
      await attached[Symbol.asyncDispose]();
      await api.close();
      await store.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** A client certificate for a user, and a kubeconfig that carries it. */
async function issueKubeconfig(
  { dir, pki, server }: { dir: string; pki: Pki; server: string },
  user: string,
  groups: readonly string[],
) {
  const name = user.replaceAll(/[^a-z0-9-]/g, "-");
  const leaf = { file: `client-${name}`, commonName: user, organizations: groups, use: { kind: "client" } } as const;
  const credentials = await pki.leaf(leaf, Date.now());
  const file = path.join(dir, `${name}.kubeconfig`);
  await writeKubeconfig(file, {
    server,
    caBundlePem: pki.caBundlePem,
    credentials,
    name: "test",
    namespace: "default",
  });
  return { file, credentials };
}
