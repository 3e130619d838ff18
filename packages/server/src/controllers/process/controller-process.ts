import { readFile } from "node:fs/promises";
import { type Client, type Clock, createClient, runLeaderElection } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { MetricsRegistry } from "../../telemetry/metrics.ts";
import { type ControllerSet, controllers, metricsOf } from "../controllers.ts";
import { collectSandboxes } from "../sandbox-gauge.ts";
import { type BuildInfo, setBuildInfo } from "./build-info.ts";
import { readCertificateFiles, watchCertificateFiles } from "./certificate-files.ts";
import { type ConversionWebhook, openConversionWebhook } from "./conversion-webhook.ts";
import { countedTransport } from "./counted-transport.ts";
import { type ControllerFlagValues, controllerConfig, parseLabelDomains } from "./flags.ts";
import { openHealthServers } from "./health-server.ts";
import { warnOfMissingFields } from "./missing-fields.ts";
import { Profiles, type ProfilingLevel } from "./profiles.ts";
import { startTracing } from "./start-tracing.ts";
import {
  type CertificateIssuer,
  ensureWebhookCertificates,
  patchConversionCrds,
  type WebhookCertificateOptions,
} from "./webhook-certificates.ts";

/** What the `controller` role is made of. */
export interface ControllerProcessOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly registry: MetricsRegistry;
  readonly flags: ControllerFlagValues;
  /** Unique among replicas. */
  readonly identity: string;
  /** Namespace of this process, for the lease; from the cluster's credentials. */
  readonly namespace: string;
  readonly issue: CertificateIssuer;
  readonly randomBytes: (count: number) => Uint8Array;
  readonly build: BuildInfo;
  readonly signal: AbortSignal;
}

/** The lease all replicas of the reference and of ours contend for: the two never lead at once. Exported for tests. */
export const leaseName = "a3317529.agent-sandbox.x-k8s.io";
const labelDomainsFile = "/etc/sandbox-config/allowed-label-domains";

/** Runs the role until the signal aborts: probes and webhook on every replica, controllers on the leader. */
export async function runControllerProcess(options: ControllerProcessOptions): Promise<void> {
  const { clock, logger, registry, flags, identity, signal } = options;
  const metrics = metricsOf(registry);
  const client = createClient(countedTransport(options.client.transport, metrics));
  const domains = await readFile(labelDomainsFile, "utf8").catch(absentFile);
  const config = controllerConfig(flags, parseLabelDomains(domains ?? ""));
  await warnOfMissingFields(client, logger, signal);
  setBuildInfo(registry, options.build);
  await using _tracing = flags["enable-tracing"] ? await startTracing() : undefined;
  await using webhook = flags["enable-webhook"] ? await startWebhook({ ...options, client }) : undefined;
  if (webhook === undefined) {
    logger.info("no conversion webhook: the definitions of our kinds must have the conversion strategy None");
  }
  using profiles = new Profiles(profilingLevel(flags), {
    blockRateNs: flags["pprof-block-profile-rate"],
    mutexFraction: flags["pprof-mutex-profile-fraction"],
  });
  let leading: ControllerSet | undefined;
  await using _health = await openHealthServers({
    metricsAddress: flags["metrics-bind-address"],
    healthAddress: flags["health-probe-bind-address"],
    registry,
    checks: {
      caches: () => leading?.hasSynced() ?? true,
      webhook: () => !flags["enable-webhook"] || webhook !== undefined,
    },
    profiles,
  });
  const lead = async (term: AbortSignal): Promise<void> => {
    // Caches are filled at the beginning of a term: what the predecessor wrote last is in them.
    leading = controllers({ client, clock, logger, metrics: registry, config });
    metrics.leader.set({ name: leaseName }, 1);
    logger.info({ identity }, "leading");
    try {
      await leading.run(term);
    } finally {
      leading = undefined;
      // What is counted is the leader's to export: two replicas would count everything twice.
      collectSandboxes(registry, () => []);
      metrics.leader.set({ name: leaseName }, 0);
    }
  };
  // Awaited here, because the probes and the webhook live as long as this call.
  if (!flags["leader-elect"]) return await lead(signal);
  const namespace = flags["leader-election-namespace"] === "" ? options.namespace : flags["leader-election-namespace"];
  await runLeaderElection({
    client,
    clock,
    namespace,
    name: leaseName,
    identity,
    lead,
    onError: (error) => logger.warn({ err: error }, "leader election attempt failed"),
    signal,
  });
}

function profilingLevel(flags: ControllerFlagValues): ProfilingLevel {
  if (flags["enable-pprof-debug"]) return "all";
  return flags["enable-pprof"] ? "cpu" : "off";
}

function absentFile(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}

async function startWebhook(options: ControllerProcessOptions): Promise<ConversionWebhook> {
  const { flags, logger, registry } = options;
  const metrics = metricsOf(registry);
  const onPanic = (error: unknown): void => {
    metrics.webhookPanics.inc();
    logger.warn({ err: error }, "conversion failed");
  };
  const port = flags["webhook-port"];
  if (!flags["manage-webhook-certs"]) return openOwnWebhook(options, port, onPanic);
  const parts: WebhookCertificateOptions = {
    client: options.client,
    clock: options.clock,
    logger,
    issue: options.issue,
    randomBytes: options.randomBytes,
    serviceName: flags["webhook-service-name"],
    namespace: flags["webhook-namespace"],
    clusterDomain: flags["cluster-domain"],
  };
  const certificates = await ensureWebhookCertificates(parts, options.signal);
  await patchConversionCrds(parts, certificates.caBundlePem, options.signal);
  const webhook = await openConversionWebhook({ port, certificate: certificates, onPanic });
  keepRenewed(parts, webhook, certificates.renewAtMs, options.signal);
  return webhook;
}

/** Serves with the operator's files, and with their successors. */
async function openOwnWebhook(
  { flags, logger, registry, signal }: ControllerProcessOptions,
  port: number,
  onPanic: (error: unknown) => void,
): Promise<ConversionWebhook> {
  const metrics = metricsOf(registry);
  const webhook = await openConversionWebhook({ port, certificate: await readCertificateFiles(flags), onPanic });
  metrics.certificateReads.inc();
  const onChange: ConversionWebhook["renew"] = (certificate) => {
    metrics.certificateReads.inc();
    webhook.renew(certificate);
    logger.info("the webhook's certificate files were read again");
  };
  const onError = (error: unknown): void => {
    metrics.certificateErrors.inc();
    logger.error({ err: error }, "the webhook's certificate files cannot be used");
  };
  watchCertificateFiles(flags, { onChange, onError }, signal);
  return webhook;
}

/** A day: long before a certificate ends, and short enough to see what another replica renewed or a tool overwrote. */
const lookEveryMs = 24 * 3_600_000;

/** Looks every day: renews in time, takes over what another replica renewed, and repairs the CRDs' trust. */
function keepRenewed(
  parts: WebhookCertificateOptions,
  webhook: ConversionWebhook,
  renewAtMs: number,
  signal: AbortSignal,
): void {
  const { clock, logger } = parts;
  const look = async (): Promise<void> => {
    const certificates = await ensureWebhookCertificates(parts, signal);
    await patchConversionCrds(parts, certificates.caBundlePem, signal);
    webhook.renew(certificates);
  };
  const arm = (delayMs: number): void => {
    const dispose = clock.setTimer(delayMs, () => {
      if (signal.aborted) return;
      look()
        .catch((error: unknown) => logger.error({ err: error }, "webhook certificate not renewed"))
        .finally(() => arm(lookEveryMs));
    });
    signal.addEventListener("abort", dispose, { once: true });
  };
  arm(Math.max(1, Math.min(lookEveryMs, renewAtMs - clock.nowMs())));
}
