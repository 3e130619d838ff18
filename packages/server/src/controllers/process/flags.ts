import { tryParseGoDuration } from "@agent-sandbox/api";
import { isWithin, restrictedDomains } from "../claim-binding/pod-metadata-policy.ts";
import { type ControllerConfig, configDefaults } from "../config.ts";
import { FlagError, type FlagTable, type FlagValues, goFlagsUsage, parseGoFlags } from "./go-flags.ts";

/** The reference controller's flags, with its defaults. Exported for tests. */
export const controllerFlags = {
  version: { kind: "bool", fallback: false, help: "Print the version and exit." },
  "metrics-bind-address": { kind: "string", fallback: ":8080", help: "Where metrics are served." },
  "health-probe-bind-address": { kind: "string", fallback: ":8081", help: "Where /healthz and /readyz are served." },
  "leader-elect": { kind: "bool", fallback: true, help: "Act only while holding the lease." },
  "leader-election-namespace": { kind: "string", fallback: "", help: "Namespace of the lease; empty: the Pod's own." },
  extensions: { kind: "bool", fallback: false, help: "Run the template, pool and claim controllers too." },
  "cluster-domain": { kind: "string", fallback: "cluster.local", help: "DNS suffix of the cluster." },
  "enable-webhook": { kind: "bool", fallback: true, help: "Serve conversions; without it CRDs must convert by None." },
  "webhook-port": { kind: "int", fallback: 9443, help: "Port of the conversion webhook." },
  "webhook-cert-dir": {
    kind: "string",
    fallback: "/tmp/k8s-webhook-server/serving-certs",
    help: "Directory of the webhook's certificate.",
  },
  "webhook-cert-name": { kind: "string", fallback: "tls.crt", help: "File name of the certificate." },
  "webhook-key-name": { kind: "string", fallback: "tls.key", help: "File name of the key." },
  "webhook-service-name": {
    kind: "string",
    fallback: "agent-sandbox-webhook-service",
    help: "Service of the webhook.",
  },
  "webhook-namespace": { kind: "string", fallback: "agent-sandbox-system", help: "Namespace of the webhook." },
  "manage-webhook-certs": { kind: "bool", fallback: true, help: "Make, store and renew the webhook's certificate." },
  "enable-tracing": { kind: "bool", fallback: false, help: "Export traces by OTLP." },
  "enable-pprof": { kind: "bool", fallback: false, help: "Serve a CPU profile on the metrics address." },
  "enable-pprof-debug": { kind: "bool", fallback: false, help: "Serve all profiles on the metrics address." },
  "pprof-block-profile-rate": {
    kind: "int",
    fallback: 1_000_000,
    help: "Nanoseconds between samples of the event loop's delay, served as block; 0 or less: none.",
  },
  "pprof-mutex-profile-fraction": {
    kind: "int",
    fallback: 10,
    help: "0 or less: do not serve how much of the time the event loop was taken, as mutex.",
  },
  "kube-api-qps": { kind: "float", fallback: -1, help: "Requests per second; -1: no limit of the client's own." },
  "kube-api-burst": { kind: "int", fallback: 10, help: "Requests at once under --kube-api-qps." },
  "api-connections": { kind: "int", fallback: 1, help: "HTTP/2 connections to the API server." },
  "separate-watch-connection": { kind: "bool", fallback: false, help: "Watches get a connection of their own." },
  "cache-label-selectors": { kind: "bool", fallback: false, help: "Cache only Pods and Services of Sandboxes." },
  "sandbox-concurrent-workers": { kind: "int", fallback: 100, help: "Sandboxes worked on at once." },
  "sandbox-claim-concurrent-workers": { kind: "int", fallback: 50, help: "Claims worked on at once." },
  "sandbox-warm-pool-concurrent-workers": { kind: "int", fallback: 1, help: "Pools worked on at once." },
  "sandbox-template-concurrent-workers": { kind: "int", fallback: 1, help: "Templates worked on at once." },
  "sandbox-write-behind-window": { kind: "duration", fallback: 0, help: "Delay of Pod metadata patches." },
  "sandbox-warm-pool-max-batch-size": { kind: "int", fallback: 300, help: "Members created or deleted per pass." },
  "sandbox-warm-pool-replenish-delay": { kind: "duration", fallback: 0, help: "Wait before a pool refills." },
  "sandbox-warm-pool-max-refill-rate": {
    kind: "float",
    fallback: 0,
    help: "Members per second and pool; 0: no limit.",
  },
  "sandbox-warm-pool-readiness-grace-period": {
    kind: "duration",
    fallback: 300_000,
    help: "How long a member may be not Ready.",
  },
  "sandbox-warm-pool-unschedulable-recheck-interval": {
    kind: "duration",
    fallback: 60_000,
    help: "How often a held member is looked at.",
  },
  "enable-warm-pool-eviction": { kind: "bool", fallback: true, help: "Unclaimed members are safe to evict." },
  "disable-claim-events": { kind: "bool", fallback: false, help: "Write no Events about claims." },
  "disable-claim-observability-annotations": { kind: "bool", fallback: false, help: "Write no time marks on claims." },
  "router-namespace": {
    kind: "string",
    fallback: "agent-sandbox-system",
    help: "Where the router runs, which the default network policy lets in; not a flag of the reference.",
  },
  kubeconfig: { kind: "string", fallback: "", help: "Credentials; else $KUBECONFIG, in-cluster, ~/.kube/config." },
  "zap-devel": { kind: "bool", fallback: false, help: "Accepted for compatibility." },
  "zap-encoder": { kind: "string", fallback: "json", help: "Accepted for compatibility; output is JSON." },
  "zap-log-level": { kind: "string", fallback: "info", help: "debug, info, error, panic or a number." },
  "zap-stacktrace-level": { kind: "string", fallback: "error", help: "Accepted for compatibility." },
  "zap-time-encoding": { kind: "string", fallback: "rfc3339", help: "Accepted for compatibility." },
} as const satisfies FlagTable;

/** The values of the controller's flags. */
export type ControllerFlagValues = FlagValues<typeof controllerFlags>;

/** A checked command line: what to refuse, what to warn about, and the values. */
export interface ControllerFlagResult {
  readonly values: ControllerFlagValues;
  readonly errors: readonly string[];
  readonly warnings: readonly string[];
}

/** More workers than this in all is more than an API server's fairness gives seats for. */
const workersWarnAbove = 1_000;

/** Parses and checks; a syntax error throws `FlagError`. */
export function parseControllerFlags(args: readonly string[]): ControllerFlagResult {
  const { values, rest } = parseGoFlags(controllerFlags, args, tryParseGoDuration);
  const errors = rest.length > 0 ? [`unexpected argument "${rest[0]}"`] : [];
  return { values, errors: [...errors, ...validate(values)], warnings: warn(values) };
}

/** What `--help` prints. */
export function controllerUsage(): string {
  return goFlagsUsage("agent-sandbox controller", "Runs the controllers on a cluster.", controllerFlags);
}

/** What the reference's logging flags take; the output is JSON with RFC 3339 times whatever they say. */
const loggingWords = {
  "zap-encoder": /^(json|console)$/,
  "zap-log-level": /^(debug|info|error|panic|\d+)$/,
  "zap-stacktrace-level": /^(info|error|panic)$/i,
  "zap-time-encoding": /^(epoch|millis|nano|iso8601|rfc3339|rfc3339nano)$/i,
} as const;

function validate(values: ControllerFlagValues): string[] {
  const positive = [
    "kube-api-burst",
    "api-connections",
    "sandbox-concurrent-workers",
    "sandbox-claim-concurrent-workers",
    "sandbox-warm-pool-concurrent-workers",
    "sandbox-warm-pool-max-batch-size",
    "sandbox-warm-pool-readiness-grace-period",
    "sandbox-warm-pool-unschedulable-recheck-interval",
  ] as const;
  const errors = positive.filter((name) => values[name] <= 0).map((name) => `--${name} must be greater than 0`);
  if (values["sandbox-write-behind-window"] < 0) errors.push("--sandbox-write-behind-window must not be negative");
  const rate = values["sandbox-warm-pool-max-refill-rate"];
  if (!Number.isFinite(rate) || rate < 0)
    errors.push("--sandbox-warm-pool-max-refill-rate must be finite and not negative");
  for (const [name, allowed] of Object.entries(loggingWords)) {
    const value = values[name as keyof typeof loggingWords];
    if (!allowed.test(value)) errors.push(`--${name}: invalid value "${value}"`);
  }
  for (const name of ["webhook-cert-name", "webhook-key-name"] as const) {
    if (values[name].trim() === "") errors.push(`--${name} must not be blank`);
  }
  return errors;
}

function warn(values: ControllerFlagValues): string[] {
  const workers =
    values["sandbox-concurrent-workers"] +
    values["sandbox-claim-concurrent-workers"] +
    values["sandbox-warm-pool-concurrent-workers"] +
    Math.max(1, values["sandbox-template-concurrent-workers"]);
  const warnings: string[] = [];
  if (workers > workersWarnAbove) warnings.push(`${workers} workers in all; more than ${workersWarnAbove} rarely help`);
  if (values["kube-api-qps"] > 0 && workers > values["kube-api-burst"]) {
    warnings.push(`${workers} workers share a burst of ${values["kube-api-burst"]} requests`);
  }
  if (
    values["manage-webhook-certs"] &&
    (values["webhook-cert-name"] !== "tls.crt" || values["webhook-key-name"] !== "tls.key")
  ) {
    warnings.push("--webhook-cert-name and --webhook-key-name are ignored while certificates are managed");
  }
  return warnings;
}

/** The part of the flags that the controllers themselves read. */
export function controllerConfig(
  values: ControllerFlagValues,
  allowedLabelDomains: readonly string[],
): ControllerConfig {
  return {
    ...configDefaults,
    clusterDomain: values["cluster-domain"],
    extensions: values.extensions,
    sandboxWorkers: values["sandbox-concurrent-workers"],
    claimWorkers: values["sandbox-claim-concurrent-workers"],
    warmPoolWorkers: values["sandbox-warm-pool-concurrent-workers"],
    templateWorkers: values["sandbox-template-concurrent-workers"],
    writeBehindMs: values["sandbox-write-behind-window"],
    poolBatchMax: values["sandbox-warm-pool-max-batch-size"],
    replenishDelayMs: values["sandbox-warm-pool-replenish-delay"],
    refillRate: values["sandbox-warm-pool-max-refill-rate"],
    readinessGraceMs: values["sandbox-warm-pool-readiness-grace-period"],
    unschedulableRecheckMs: values["sandbox-warm-pool-unschedulable-recheck-interval"],
    poolEviction: values["enable-warm-pool-eviction"],
    claimEvents: !values["disable-claim-events"],
    claimObservabilityAnnotations: !values["disable-claim-observability-annotations"],
    allowedLabelDomains: allowedLabelDomains.length > 0 ? allowedLabelDomains : configDefaults.allowedLabelDomains,
    cacheLabelSelectors: values["cache-label-selectors"],
    routerNamespace: values["router-namespace"],
  };
}

/** Reads the list of allowed label domains: commas or newlines, trimmed, lower case. Throws where one would open a domain of the system. */
export function parseLabelDomains(text: string): string[] {
  const domains = text
    .split(/[,\n]/)
    .map((domain) => domain.trim().toLowerCase())
    .filter((domain) => domain !== "");
  for (const domain of domains) {
    const opened = restrictedDomains.find((system) => isWithin(domain, system) || isWithin(system, domain));
    if (opened !== undefined) {
      throw new FlagError(`allowed label domain "${domain}" would let claims set labels of ${opened}; remove it`);
    }
  }
  return domains;
}
