import { readFile } from "node:fs/promises";
import path from "node:path";
import { systemClock } from "@agent-sandbox/kube";
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
async function startRouter({ config, layout, logger }: RoleContext): Promise<Role & { facts: object }> {
  const client = await openRoleClient(path.join(layout.pkiDir, "router.kubeconfig"));
  const [linkSecret, cert, key, ca] = await Promise.all(
    ["links.key", "router.crt", "router.key", "ca.crt"].map((file) => readFile(path.join(layout.pkiDir, file))),
  );
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
    ...(linkSecret !== undefined && { linkSecret }),
  });
  await router.table.synced(AbortSignal.timeout(30_000));
  const tls = { cert, key, ca, clientCertificate: "optional" } as const;
  const port = await router.listen(config.routerListen, { kind: "credentials" }, tls);
  await router.listenForTunnels(path.join(layout.runDir, "router/router.sock"));
  if (config.routerInsecureListen !== undefined) await router.listen(config.routerInsecureListen, { kind: "insecure" });
  return {
    facts: { routerAddress: formatAddress({ host: config.routerListen.host, port }) },
    stop: async () => {
      await router.close(drainMs);
      await client.transport.close();
    },
  };
}

await runRole("router", startRouter);
