import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import path from "node:path";
import { systemClock } from "@agent-sandbox/kube";
import { writeSecret } from "../apiserver/auth/pki.ts";
import { openRouter } from "../router/open-router.ts";
import { createMetricsRegistry } from "../telemetry/metrics.ts";
import { formatAddress } from "./engine-config.ts";
import { type Role, type RoleContext, runRole } from "./role.ts";
import { openRoleClient } from "./role-client.ts";

/** The prefix of the path form on one machine. */
const pathPrefix = "/sandboxes";
/** Names below `localhost` lead to this machine in every browser, without any DNS. */
const hostDomain = "sandbox.localhost";

// Defaults of the one-machine engine; the `router` role on a cluster has flags for each.
const connectTimeoutMs = 2_000;
const firstByteTimeoutMs = 180_000;
const callerTimeoutMaxMs = 24 * 3600_000;
const retry = { retriesMax: 3, initialDelayMs: 200, maxDelayMs: 800 };
const holdLimitMs = 60_000;
const heldMax = 4_096;
const perClientMax = 4_096;
const perSandboxMax = 1_024;
const drainMs = 5_000;

/** The router process of the one-machine engine. */
async function startRouter({ config, layout, logger }: RoleContext): Promise<Role> {
  const { client, credentials } = openRoleClient(layout.roles.router.credentialsFile);
  const { serving, caBundlePem } = credentials;
  const router = openRouter({
    client,
    clock: systemClock,
    logger,
    metrics: createMetricsRegistry({ processMetrics: true }),
    addressing: { hostDomain, pathPrefix, allowLoopbackPodIp: false },
    access: { mode: "access-review" },
    limits: { perClientMax, perSandboxMax },
    connectTimeoutMs,
    firstByteTimeoutMs,
    callerTimeoutMaxMs,
    retry,
    holdLimitMs,
    heldMax,
    upgradeIdleTimeoutMs: 0,
    upgradeLifetimeMs: 0,
    bodyBytesMax: 0,
    accessLog: false,
    linkSecret: await ensureLinkSecret(path.join(layout.roles.router.dataDir, "links.key")),
  });
  await router.table.synced(AbortSignal.timeout(30_000));
  const tls = {
    cert: serving.certificatePem,
    key: serving.privateKeyPem,
    ca: caBundlePem,
    clientCertificate: "optional",
  } as const;
  const port = await router.listen(config.routerListen, { kind: "credentials" }, tls);
  await router.listenForTunnels(layout.routerSocket);
  if (config.routerInsecureListen !== undefined) await router.listen(config.routerInsecureListen, { kind: "insecure" });
  return {
    facts: { routerAddress: formatAddress({ host: config.routerListen.host, port }) },
    stop: async () => {
      await router.close(drainMs);
      await client.transport.close();
    },
  };
}

/** What signs links: made by the router at its first start, and readable by its user alone. */
async function ensureLinkSecret(file: string): Promise<Buffer> {
  try {
    return readFileSync(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  const secret = randomBytes(32).toString("base64");
  await writeSecret(file, secret);
  return Buffer.from(secret);
}

await runRole("router", startRouter);
