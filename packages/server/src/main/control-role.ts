import os from "node:os";
import path from "node:path";
import { createClient, prioritized, systemClock } from "@agent-sandbox/kube";
import { quotaUsed } from "../apiserver/admission/quota-usage.ts";
import { ApiServer } from "../apiserver/api-server.ts";
import { FileAuditLog } from "../apiserver/audit/file-audit-log.ts";
import { openSecretBox } from "../apiserver/auth/aes-gcm-secret-box.ts";
import { mastersGroup } from "../apiserver/auth/authenticator.ts";
import type { KeyAndCertificate } from "../apiserver/auth/certificate.ts";
import { componentUser, nodeUser, systemNamespace } from "../apiserver/auth/components.ts";
import { kubeconfigText } from "../apiserver/auth/kubeconfig.ts";
import { openPki, type Pki, renewalDueMs } from "../apiserver/auth/pki.ts";
import { readBuiltinSpec } from "../apiserver/kinds/builtin-kinds.ts";
import type { UserInfo } from "../apiserver/request/user-info.ts";
import { createSecurity } from "../apiserver/security.ts";
import { UsageMetrics } from "../apiserver/usage/usage-metrics.ts";
import { configDefaults } from "../controllers/config.ts";
import { controllers } from "../controllers/controllers.ts";
import { requestPriority } from "../controllers/request-priority.ts";
import { standins } from "../standins/standins.ts";
import { storeFormat } from "../store/schema.ts";
import { openStore } from "../store/sqlite-store.ts";
import { startWriterThread } from "../store/writer.ts";
import type { Logger } from "../telemetry/logger.ts";
import { createMetricsRegistry } from "../telemetry/metrics.ts";
import { applyBootstrap, readOwnCrds } from "./bootstrap.ts";
import type { EngineConfig } from "./engine-config.ts";
import { formatAddress } from "./engine-config.ts";
import type { IssuedCredentials } from "./handed-credentials.ts";
import { KubeletDialer } from "./kubelet-dialer.ts";
import type { Layout } from "./layout.ts";
import { serveMetrics } from "./metrics-server.ts";
import { type Role, type RoleContext, runRole } from "./role.ts";
import { dropPrivileges } from "./role-user.ts";
import { keepStoreOfOtherVersion } from "./store-versions.ts";
import { readVersion } from "./version.ts";

const admin: UserInfo = { username: "agent-sandbox-admin", groups: [mastersGroup, "system:authenticated"] };

/** The control process: store, API server, controllers and stand-ins. It gives root up before it opens a file of its own or a socket. */
async function startControl(context: RoleContext): Promise<Role> {
  const { config, layout, logger, user, signal } = context;
  const clock = systemClock;
  // Specifications and the writer's code are loaded first, perhaps from a directory that only root can read.
  const [builtinSpec, crds, writerThread] = [readBuiltinSpec(), readOwnCrds(), startWriterThread()];
  const version = readVersion();
  await writerThread.loaded;
  dropPrivileges(user);
  const pki = await openPki({ directory: layout.pkiDir, nowMs: clock.nowMs() });
  await keepStoreOfOtherVersion({ dbFile: layout.dbFile, version, nowMs: clock.nowMs(), logger });
  const store = openStore({ path: layout.dbFile, clock, writerThread });
  const security = createSecurity({
    clock,
    random: Math.random,
    serviceAccountKey: await pki.serviceAccountKey(),
    addresses: config.podCidr,
  });
  const dialer = new KubeletDialer({
    caPem: pki.caBundlePem,
    credentials: await apiServerLeaf(pki),
    routerSocket: layout.routerSocket,
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
    builtinSpec,
    ...(config.auditLevel !== "off" && { audit: openAudit(config, layout, logger) }),
  });
  const attached = await security.attach(api.parts);
  await api.installCrds(crds);
  await applyBootstrap(createClient(api.transportFor(admin)));
  dialer.follow(createClient(api.transportFor(admin)), signal);
  const tls = await servingTls(pki, config);
  const listener = await api.listen({ ...config.apiListen, tls });
  const apiAddress = formatAddress({ host: config.apiListen.host, port: listener.port });
  const credentials = await issueCredentials(pki, config, `https://${apiAddress}`);
  const stopRenewal = renewInTime(tls.certificate, logger);
  const running = startLoops({ api, config, caPem: pki.caBundlePem, logger, signal });
  const metrics = await serveMetrics({
    listen: config.metricsListen,
    tls,
    registry: running.metrics,
    checks: security,
  });
  const metricsAddress = formatAddress({ host: config.metricsListen.host, port: metrics.port });
  return {
    credentials,
    facts: { apiAddress, metricsAddress, storeFormat: String(storeFormat) },
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
    path: path.join(layout.roles.control.dataDir, "audit.log"),
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
    metrics,
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

/** What the others need: the administrator, and each process that speaks to the API from outside. */
async function issueCredentials(pki: Pki, { nodeName }: EngineConfig, server: string): Promise<IssuedCredentials> {
  const nowMs = systemClock.nowMs();
  const client = (file: string, user: UserInfo): Promise<KeyAndCertificate> => {
    const organizations = user.groups.filter((group) => group !== "system:authenticated");
    return pki.leaf(
      { file: `client-${file}`, commonName: user.username, organizations, use: { kind: "client" } },
      nowMs,
    );
  };
  const serving = (file: string, commonName: string, names: readonly string[]): Promise<KeyAndCertificate> =>
    pki.leaf({ file, commonName, use: { kind: "server", names } }, nowMs);
  const { caBundlePem } = pki;
  const routerNames = ["localhost", "127.0.0.1", "::1", "*.sandbox.localhost", "sandbox-router-svc"];
  const credentials = await client("admin", admin);
  return {
    adminKubeconfig: kubeconfigText({ server, caBundlePem, credentials, name: "agent-sandbox", namespace: "default" }),
    router: {
      server,
      caBundlePem,
      client: await client("router", componentUser("sandbox-router")),
      serving: await serving("router", "sandbox-router", routerNames),
    },
    node: {
      server,
      caBundlePem,
      client: await client("node", nodeUser(nodeName)),
      serving: await serving("kubelet", `system:node:${nodeName}`, [nodeName]),
    },
  };
}

await runRole("control", startControl, { keepRoot: true });
