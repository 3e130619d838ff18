import http, { type Server } from "node:http";
import { createClient, httpTransport, systemClock } from "@agent-sandbox/kube";
import { Gauge } from "prom-client";
import { wantsHelp } from "../controllers/process/go-flags.ts";
import { parseBindAddress } from "../controllers/process/health-server.ts";
import { startTracing } from "../controllers/process/start-tracing.ts";
import type { AccessMode, GateOptions } from "../router/access/gate.ts";
import type { ScopedTokenKeys } from "../router/access/scoped-token.ts";
import { followFiles } from "../router/followed-files.ts";
import { type OpenedRouter, openRouter } from "../router/open-router.ts";
import type { RouterOptions, RouterTuning } from "../router/router-options.ts";
import { TlsFiles } from "../router/tls-files.ts";
import { createLogger, type Logger } from "../telemetry/logger.ts";
import { createMetricsRegistry, type MetricsRegistry } from "../telemetry/metrics.ts";
import { clusterCredentials } from "./cluster-credentials.ts";
import { parseRouterFlags, RouterConfigError, type RouterFlagValues, routerUsage } from "./router-flags.ts";
import { commaList, RouterKeys } from "./router-keys.ts";
import { readVersion } from "./version.ts";

/** How long the first list may take before the process gives up; the reference's figure. */
const syncTimeoutMs = 60_000;

/** The `router` role on a cluster. Resolves with the exit code: 0 after a clean end, 1 on failure, 2 for bad configuration. Loaded by path. */
export async function runProcess(args: readonly string[]): Promise<number> {
  if (wantsHelp(args)) {
    process.stdout.write(routerUsage(process.env));
    return 0;
  }
  let flags: RouterFlagValues;
  try {
    flags = parseRouterFlags(args, process.env);
    if (flags.version) {
      process.stdout.write(`${versionText()}\n`);
      return 0;
    }
    // Read once here, so that a file that cannot be used is bad configuration.
    using _keys = new RouterKeys(flags, () => undefined);
  } catch (error) {
    if (!(error instanceof RouterConfigError)) throw error;
    process.stderr.write(`agent-sandbox router: ${error.message}\n`);
    return 2;
  }
  const logger = createLogger({ component: "sandbox-router", level: logLevel(flags["zap-log-level"]) });
  try {
    await serve(flags, args, logger);
    return 0;
  } catch (error) {
    logger.error({ err: error }, "the router failed");
    return 1;
  }
}

async function serve(flags: RouterFlagValues, args: readonly string[], logger: Logger): Promise<void> {
  const registry = createMetricsRegistry();
  setBuildInfo(registry);
  const readiness = { isReady: false };
  const stopped = Promise.withResolvers<string>();
  for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => stopped.resolve(name));
  // Probes come first: while the caches fill, the process must be alive and not ready, and not simply silent.
  await using _probes = await openProbes(flags["health-probe-bind-address"], readiness);
  await using _metrics = await openMetrics(flags["metrics-bind-address"], registry);
  await using _tracing = flags["enable-tracing"] ? await startTracing("sandbox-router") : undefined;
  using keys = new RouterKeys(flags, (error) => {
    if (error === undefined) logger.info("the keys were read again");
    else logger.error({ err: error }, "a key file cannot be used; the old keys stay");
  });
  const access = accessOf(flags, process.env["ROUTER_AUTH_TOKEN"], keys);
  const client = createClient(httpTransport(await clusterCredentials(flags.kubeconfig)));
  const linkSecret = flags["link-secret-file"] === "" ? {} : { linkSecret: () => keys.linkSecrets };
  const router = openRouter(routerOptions(flags, { client, access, logger, metrics: registry, ...linkSecret }));
  try {
    await synced(router);
    using _tls = await openListeners(router, flags, logger);
    using _config = followConfig(router, flags, { args, logger });
    readiness.isReady = true;
    logger.info({ http: flags["http-bind-address"], https: flags["https-bind-address"], mode: access.mode }, "ready");
    const why = await stopped.promise;
    readiness.isReady = false;
    logger.info({ why }, "draining");
    // Load balancers need a moment to see that this replica is no longer ready.
    await new Promise((resolve) => setTimeout(resolve, flags["shutdown-delay"]));
  } finally {
    await router.close(flags["shutdown-timeout"]);
    await client.transport.close();
  }
}

async function synced(router: OpenedRouter): Promise<void> {
  try {
    await router.table.synced(AbortSignal.timeout(syncTimeoutMs));
  } catch (cause) {
    throw new Error("the first list of sandboxes did not arrive; check RBAC for sandboxes get, list, watch", { cause });
  }
}

async function openListeners(router: OpenedRouter, flags: RouterFlagValues, logger: Logger): Promise<Disposable> {
  const plain = parseBindAddress(flags["http-bind-address"]);
  const secure = parseBindAddress(flags["https-bind-address"]);
  const insecure = parseBindAddress(flags["insecure-listen"]);
  const tls = secure === undefined ? undefined : openTlsFiles(router, flags, logger);
  const tunnels = flags["tunnel-namespaces"] !== "";
  const credentials = { kind: "credentials" } as const;
  // Both families where no host is named.
  const at = ({ host = "::", port }: { host?: string; port: number }) => ({ host, port });
  if (plain !== undefined) await router.listen(at(plain), credentials, undefined, { tunnels });
  if (secure !== undefined) await router.listen(at(secure), credentials, tls, { tunnels, tlsOnly: true });
  if (insecure !== undefined) await router.listen(at(insecure), { kind: "insecure" });
  return { [Symbol.dispose]: () => tls?.[Symbol.dispose]() };
}

function openTlsFiles({ metrics }: OpenedRouter, flags: RouterFlagValues, logger: Logger): TlsFiles {
  const clientCaFile = flags["tls-client-ca-file"];
  return new TlsFiles({
    certFile: flags["tls-cert-file"],
    keyFile: flags["tls-key-file"],
    clientCertificate: flags["mtls-mode"] as "off" | "optional" | "required",
    ...(clientCaFile !== "" && { clientCaFile }),
    onLoad: (outcome, error) => {
      metrics.certificatesLoaded(outcome);
      if (outcome === "failure") logger.error({ err: error }, "certificate files cannot be used; the old ones stay");
    },
  });
}

function routerOptions(
  flags: RouterFlagValues,
  parts: Pick<RouterOptions, "client" | "access" | "logger" | "metrics" | "linkSecret">,
): RouterOptions {
  return {
    ...parts,
    ...tuningOf(flags),
    clock: systemClock,
    addressing: {
      allowLoopbackPodIp: flags["allow-loopback-pod-ip"],
      ...(flags["host-domain"] !== "" && { hostDomain: flags["host-domain"].toLowerCase() }),
      ...(flags["path-routing-prefix"] !== "" && { pathPrefix: flags["path-routing-prefix"] }),
    },
    review: {
      ttlMs: flags["authz-tokenreview-ttl"],
      entriesMax: flags["authz-tokenreview-cache-size"],
      audiences: commaList(flags["authz-tokenreview-audiences"]),
    },
    connectTimeoutMs: flags["connect-timeout"],
    retry: {
      retriesMax: flags["upstream-max-retries"],
      initialDelayMs: flags["upstream-retry-initial-delay"] || 200,
      maxDelayMs: flags["upstream-retry-max-delay"] || 800,
    },
    holdLimitMs: flags["hold-limit"],
    heldMax: flags["held-requests-max"],
    upgradeIdleTimeoutMs: flags["websocket-idle-timeout"],
    upgradeLifetimeMs: flags["websocket-max-lifetime"],
    tracing: flags["enable-tracing"],
    ...(flags["cache-namespace"] !== "" && { namespace: flags["cache-namespace"] }),
  };
}

/** What a changed configuration file changes at once. */
function tuningOf(flags: RouterFlagValues): RouterTuning {
  return {
    limits: { perClientMax: flags["max-requests-per-client"], perSandboxMax: flags["max-requests-per-sandbox"] },
    firstByteTimeoutMs: flags["proxy-timeout"],
    callerTimeoutMaxMs: flags["max-timeout"],
    bodyBytesMax: flags["max-request-body-bytes"],
    accessLog: flags["access-log"],
  };
}

/** Follows the configuration file: limits and the access log change at once, the rest is said to need a restart. */
function followConfig(
  router: OpenedRouter,
  first: RouterFlagValues,
  { args, logger }: { readonly args: readonly string[]; readonly logger: Logger },
): Disposable | undefined {
  const file = first.config === "" ? (process.env["SANDBOX_ROUTER_CONFIG"] ?? "") : first.config;
  if (file === "") return undefined;
  return followFiles([file], () => {
    try {
      const flags = parseRouterFlags(args, process.env);
      router.tune(tuningOf(flags));
      const restart = changedFlags(first, flags).filter((name) => !tunable.has(name));
      logger.info({ restartFor: restart }, "the configuration file was read again");
    } catch (error) {
      logger.error({ err: error }, "the configuration file cannot be used; what it said before stays");
    }
  });
}

const tunable: ReadonlySet<string> = new Set([
  "max-requests-per-client",
  "max-requests-per-sandbox",
  "proxy-timeout",
  "max-timeout",
  "max-request-body-bytes",
  "access-log",
]);

function changedFlags(before: RouterFlagValues, after: RouterFlagValues): string[] {
  return Object.entries(after).flatMap(([name, value]) =>
    before[name as keyof RouterFlagValues] === value ? [] : [name],
  );
}

/** How callers are judged; a token in the environment is honoured as the older router did. */
function accessOf(
  flags: RouterFlagValues,
  staticToken: string | undefined,
  scopedTokenKeys: ScopedTokenKeys,
): Omit<GateOptions, "clock" | "reviewer" | "uidOf"> {
  const tunnelNamespaces = commaList(flags["tunnel-namespaces"]);
  return {
    mode: flags["authz-mode"] as AccessMode,
    scopedTokenKeys,
    allowTokenless: !flags["authz-tokenreview-require-token"],
    tunnelNamespaces,
    ...(staticToken !== undefined && staticToken !== "" && { staticToken }),
    ...(tunnelNamespaces.length > 0 && { insecureNamespaces: tunnelNamespaces }),
  };
}

/** Inside a cluster only its own credentials count: a broken mount must not lead to somebody's file. */
async function openProbes(address: string, readiness: { readonly isReady: boolean }): Promise<AsyncDisposable> {
  return openServer(address, (request, response) => {
    const [target] = (request.url ?? "").split("?");
    if (target === "/healthz") return answer(response, 200, "application/json", '{"status":"ok"}');
    if (target !== "/readyz") return answer(response, 404, "text/plain", "not found\n");
    return readiness.isReady
      ? answer(response, 200, "text/plain", "ok")
      : answer(response, 503, "text/plain", "draining");
  });
}

async function openMetrics(address: string, registry: MetricsRegistry): Promise<AsyncDisposable> {
  return openServer(address, (request, response) => {
    if ((request.url ?? "").split("?")[0] !== "/metrics") return answer(response, 404, "text/plain", "not found\n");
    registry.metrics().then(
      (text) => answer(response, 200, registry.contentType, text),
      (error: unknown) => answer(response, 500, "text/plain", String(error)),
    );
  });
}

function answer(response: http.ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, { "Content-Type": type, "Content-Length": String(Buffer.byteLength(body)) }).end(body);
}

async function openServer(address: string, serve: http.RequestListener): Promise<AsyncDisposable> {
  const bind = parseBindAddress(address);
  if (bind === undefined) return { [Symbol.asyncDispose]: () => Promise.resolve() };
  const server: Server = http.createServer(serve);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(bind, () => resolve());
  });
  return {
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function setBuildInfo(registry: MetricsRegistry): void {
  const labels = {
    git_version: readVersion(),
    git_commit: "unknown",
    build_date: "unknown",
    go_version: `node-${process.versions.node}`,
    compiler: "v8",
    platform: `${process.platform}/${process.arch}`,
  };
  const options = { name: "sandbox_router_build_info", help: "Constant 1, labelled by what this program is" };
  new Gauge({ ...options, labelNames: Object.keys(labels), registers: [registry] }).set(labels, 1);
}

function versionText(): string {
  return [
    `sandbox-router, version ${readVersion()} (revision: unknown)`,
    "  build date:       unknown",
    `  go version:       node-${process.versions.node}`,
    "  compiler:         v8",
    `  platform:         ${process.platform}/${process.arch}`,
  ].join("\n");
}

/** zap's names and numbers; verbosity above zero is debugging. */
function logLevel(text: string): string {
  if (/^\d+$/.test(text)) return Number(text) > 0 ? "debug" : "info";
  return text === "panic" ? "fatal" : ["debug", "info", "warn", "error"].includes(text) ? text : "info";
}
