import { randomBytes } from "node:crypto";
import { chownSync, existsSync, readdirSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { createClient, prioritized, systemClock } from "@agent-sandbox/kube";
import { quotaUsed } from "../apiserver/admission/quota-usage.ts";
import { ApiServer } from "../apiserver/api-server.ts";
import { FileAuditLog } from "../apiserver/audit/file-audit-log.ts";
import { openSecretBox } from "../apiserver/auth/aes-gcm-secret-box.ts";
import type { UserInfo } from "../apiserver/auth/authenticator.ts";
import { mastersGroup } from "../apiserver/auth/authenticator.ts";
import { componentUser, nodeUser, systemNamespace } from "../apiserver/auth/components.ts";
import { writeKubeconfig } from "../apiserver/auth/kubeconfig.ts";
import { openPki, type Pki, renewalDueMs, writeSecret } from "../apiserver/auth/pki.ts";
import { createSecurity } from "../apiserver/auth/security.ts";
import { UsageMetrics } from "../apiserver/usage/usage-metrics.ts";
import { configDefaults } from "../controllers/config.ts";
import { controllers } from "../controllers/controllers.ts";
import { requestPriority } from "../controllers/request-rank.ts";
import { standins } from "../standins/standins.ts";
import { openStore } from "../store/sqlite-store.ts";
import type { Logger } from "../telemetry/logger.ts";
import { createMetricsRegistry } from "../telemetry/metrics.ts";
import { applyBootstrap, readOwnCrds } from "./bootstrap.ts";
import type { EngineConfig } from "./engine-config.ts";
import { formatAddress } from "./engine-config.ts";
import { dropPrivileges } from "./engine-user.ts";
import { KubeletDialer } from "./kubelet-dialer.ts";
import type { Layout } from "./layout.ts";
import { serveMetrics } from "./metrics-server.ts";
import { type Role, type RoleContext, runRole } from "./role.ts";

const admin: UserInfo = { username: "agent-sandbox-admin", groups: [mastersGroup, "system:authenticated"] };

/** The control process: store, API server, controllers and stand-ins. It gives root up before it opens a socket. */
async function startControl(context: RoleContext): Promise<Role & { facts: object }> {
  const { config, layout, logger, signal } = context;
  const clock = systemClock;
  const pki = await openPki({ directory: layout.pkiDir, nowMs: clock.nowMs() });
  const store = openStore({ path: layout.dbFile, clock });
  const security = createSecurity({
    clock,
    random: Math.random,
    serviceAccountKey: await pki.serviceAccountKey(),
    addresses: config.podCidr,
  });
  const dialer = new KubeletDialer({
    caPem: pki.caBundlePem,
    credentials: await apiServerLeaf(pki),
    routerSocket: path.join(layout.runDir, "router/router.sock"),
  });
  const api = new ApiServer({
    store,
    clock,
    logger,
    authenticator: security.authenticator,
    authorizer: security.authorizer,
    admission: security.admission,
    virtualResources: [
      ...security.virtualResources,
      ...new UsageMetrics({ reader: security.reader, dialer, clock }).resources(),
    ],
    tokenIssuer: security.tokens,
    secretBox: await openSecretBox(path.join(layout.pkiDir, "secrets.key")),
    nodeDialer: dialer,
    ...(config.auditLevel !== "off" && { audit: openAudit(config, layout, logger) }),
  });
  const attached = await security.attach(api.parts);
  await api.installCrds(readOwnCrds());
  await applyBootstrap(createClient(api.transportFor(admin)));
  // Specifications and, with the store ready, the writer thread are loaded, perhaps from a directory that only root can read; what was made meanwhile becomes the engine's.
  await store.ready;
  for (const dir of [path.dirname(layout.dbFile), layout.pkiDir]) giveTo(config.user, dir);
  dropPrivileges(config.user);
  dialer.follow(createClient(api.transportFor(admin)), signal);
  const tls = await servingTls(pki, config);
  const listener = await api.listen({ ...config.apiListen, tls });
  const apiAddress = formatAddress({ host: config.apiListen.host, port: listener.port });
  await writeKubeconfigs({ pki, config, layout, server: `https://${apiAddress}` });
  await issueServingLeaves(pki, config, layout);
  const stopRenewal = renewInTime(tls.certificate, logger);
  const running = startLoops({ api, config, caPem: pki.caBundlePem, logger, signal });
  const metrics = await serveMetrics(config.metricsListen, running.metrics);
  return {
    facts: { apiAddress, metricsAddress: formatAddress({ host: config.metricsListen.host, port: metrics.port }) },
    stop: async () => {
      stopRenewal();
      await running.ended;
      await metrics.close();
      await listener.close();
      await attached[Symbol.asyncDispose]();
      await api.close();
      await store.close();
    },
  };
}

function openAudit(config: EngineConfig, layout: Layout, logger: Logger): FileAuditLog {
  return new FileAuditLog({
    path: path.join(layout.logsDir, "audit.log"),
    level: config.auditLevel,
    onError: (error) => logger.error({ err: error }, "audit log cannot be written"),
  });
}

/** Every certificate of the engine is issued at start with the same life, so ending in time renews all of them: the supervisor starts us again. */
function renewInTime(certificatePem: string, logger: Logger): () => void {
  return systemClock.setTimer(Math.max(0, renewalDueMs(certificatePem) - systemClock.nowMs()), () => {
    logger.info("certificates are due for renewal; ending to issue them anew");
    process.kill(process.pid, "SIGTERM");
  });
}

interface LoopOptions {
  readonly api: ApiServer;
  readonly config: EngineConfig;
  readonly caPem: string;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** Controllers and stand-ins, each under its own identity, as on a cluster. */
function startLoops({ api, config, caPem, logger, signal }: LoopOptions): {
  readonly ended: Promise<unknown>;
  readonly metrics: ReturnType<typeof createMetricsRegistry>;
} {
  const clock = systemClock;
  const metrics = createMetricsRegistry({ processMetrics: true });
  const transport = api.transportFor(componentUser("agent-sandbox-controller"));
  const set = controllers({
    client: createClient(prioritized(transport, { ...requestPriority, clock })),
    clock,
    logger: logger.child({ component: "controllers" }),
    metrics,
    config: { ...configDefaults, clusterDomain: config.clusterDomain, extensions: true },
  });
  const stand = standins({
    client: createClient(api.transportFor(componentUser("agent-sandbox-standins"))),
    clock,
    logger: logger.child({ component: "standins" }),
    caBundlePem: caPem,
    router: { systemNamespace, address: config.routerListen.host },
    quotaUsed,
  });
  const failed = (name: string) => (error: unknown) => {
    if (signal.aborted) return;
    logger.fatal({ err: error }, `${name} ended; the process ends with them`);
    process.exit(1);
  };
  const ended = Promise.all([
    set.run(signal).catch(failed("controllers")),
    stand.run(signal).catch(failed("stand-ins")),
  ]);
  return { ended, metrics };
}

function apiServerLeaf(pki: Pki) {
  const request = {
    file: "apiserver-kubelet-client",
    commonName: "kube-apiserver-kubelet-client",
    organizations: [mastersGroup],
    use: { kind: "client" },
  } as const;
  return pki.leaf(request, systemClock.nowMs());
}

async function servingTls(pki: Pki, config: EngineConfig) {
  const names = [
    "localhost",
    "127.0.0.1",
    "::1",
    os.hostname(),
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    `kubernetes.default.svc.${config.clusterDomain}`,
  ];
  const host = config.apiListen.host;
  const leaf = await pki.leaf(
    {
      file: "apiserver",
      commonName: "kube-apiserver",
      use: { kind: "server", names: [...new Set([...names, ...(host === "0.0.0.0" || host === "::" ? [] : [host])])] },
    },
    systemClock.nowMs(),
  );
  return { certificate: leaf.certificatePem, key: leaf.privateKeyPem, clientCa: pki.caBundlePem };
}

/** Certificates and keys of the router and of the node's kubelet endpoint, which those processes read from disk. */
async function issueServingLeaves(pki: Pki, config: EngineConfig, layout: Layout): Promise<void> {
  const nowMs = systemClock.nowMs();
  const routerNames = ["localhost", "127.0.0.1", "::1", "*.sandbox.localhost", "sandbox-router-svc"];
  await pki.leaf({ file: "router", commonName: "sandbox-router", use: { kind: "server", names: routerNames } }, nowMs);
  const kubelet = {
    file: "kubelet",
    commonName: `system:node:${config.nodeName}`,
    use: { kind: "server", names: [config.nodeName] },
  } as const;
  await pki.leaf(kubelet, nowMs);
  const linkKey = path.join(layout.pkiDir, "links.key");
  if (!existsSync(linkKey)) await writeSecret(linkKey, randomBytes(32).toString("base64"));
}

interface KubeconfigTarget {
  readonly pki: Pki;
  readonly config: EngineConfig;
  readonly layout: Layout;
  readonly server: string;
}

/** One kubeconfig for the administrator and one for each process that speaks to the API from outside. */
async function writeKubeconfigs({ pki, config, layout, server }: KubeconfigTarget): Promise<void> {
  const nodeName = config.nodeName;
  const users: readonly (readonly [file: string, user: UserInfo])[] = [
    ["admin", admin],
    ["router", componentUser("sandbox-router")],
    ["node", nodeUser(nodeName)],
  ];
  for (const [file, user] of users) {
    const organizations = user.groups.filter((group) => group !== "system:authenticated");
    const leaf = { file: `client-${file}`, commonName: user.username, organizations, use: { kind: "client" } } as const;
    const credentials = await pki.leaf(leaf, systemClock.nowMs());
    const target = path.join(layout.pkiDir, `${file}.kubeconfig`);
    await writeKubeconfig(target, {
      server,
      caBundlePem: pki.caBundlePem,
      credentials,
      name: "agent-sandbox",
      namespace: "default",
    });
  }
}

/** Hands the files of a directory to the engine's user. */
function giveTo({ uid, gid }: EngineConfig["user"], dir: string): void {
  for (const name of readdirSync(dir)) chownSync(path.join(dir, name), uid, gid);
}

await runRole("control", startControl, { keepRoot: true });
