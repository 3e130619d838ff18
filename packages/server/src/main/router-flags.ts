import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { tryParseGoDuration } from "@agent-sandbox/api";
import { parse } from "yaml";
import {
  FlagError,
  type FlagTable,
  type FlagValues,
  goFlagsUsage,
  parseGoFlags,
} from "../controllers/process/go-flags.ts";
import { parseBindAddress } from "../controllers/process/health-server.ts";

/** The reference router's flags with its defaults, then ours. Durations are in milliseconds. Exported for tests. */
export const routerFlags = {
  version: { kind: "bool", fallback: false, help: "Print the version and exit." },
  config: { kind: "string", fallback: "", help: "YAML file with the same keys as these flags." },
  "http-bind-address": { kind: "string", fallback: ":8080", help: "Proxy in clear text; empty: off." },
  "https-bind-address": { kind: "string", fallback: "", help: "Proxy over TLS; empty: off." },
  "metrics-bind-address": { kind: "string", fallback: ":9090", help: "Where /metrics is served; empty: nowhere." },
  "health-probe-bind-address": { kind: "string", fallback: ":8081", help: "Where /healthz and /readyz are served." },
  "tls-cert-file": { kind: "string", fallback: "", help: "Certificate of the TLS listener, PEM; watched." },
  "tls-key-file": { kind: "string", fallback: "", help: "Its key, PEM; watched." },
  "tls-client-ca-file": { kind: "string", fallback: "", help: "Authorities of client certificates, PEM; watched." },
  "mtls-mode": { kind: "string", fallback: "off", help: "Client certificates: off, optional or required." },
  "cluster-domain": { kind: "string", fallback: "cluster.local", help: "DNS suffix of the cluster." },
  "proxy-timeout": {
    kind: "duration",
    fallback: 180_000,
    help: "Until an answer begins, where the caller names no limit.",
  },
  "response-header-timeout": {
    kind: "duration",
    fallback: 30_000,
    help: "Accepted; --proxy-timeout is the one limit.",
  },
  "shutdown-timeout": { kind: "duration", fallback: 30_000, help: "How long open exchanges may take to end." },
  "max-request-body-bytes": { kind: "int", fallback: 0, help: "Longer bodies are 413; 0: no limit." },
  "allow-loopback-pod-ip": { kind: "bool", fallback: false, help: "Accept loopback addresses as X-Sandbox-Pod-IP." },
  "upstream-max-retries": { kind: "int", fallback: 3, help: "Connection attempts after the first." },
  "upstream-retry-initial-delay": { kind: "duration", fallback: 200, help: "Before the first of them; then doubling." },
  "upstream-retry-max-delay": { kind: "duration", fallback: 800, help: "The longest wait between two." },
  "enable-tracing": {
    kind: "bool",
    fallback: false,
    help: "Export spans by OTLP; on where OTEL_EXPORTER_OTLP_* is set.",
  },
  "enable-otel-metrics": { kind: "bool", fallback: false, help: "Accepted; metrics are scraped from /metrics." },
  "authz-mode": {
    kind: "string",
    fallback: "access-review",
    help: "access-review, tokenreview, scoped-token, allow-all.",
  },
  "authz-tokenreview-ttl": {
    kind: "duration",
    fallback: 30_000,
    help: "How long an answer of the API server is believed.",
  },
  "authz-tokenreview-cache-size": { kind: "int", fallback: 2048, help: "How many answers are kept." },
  "authz-tokenreview-require-token": {
    kind: "bool",
    fallback: false,
    help: "With tokenreview: refuse calls without one.",
  },
  "authz-tokenreview-audiences": {
    kind: "string",
    fallback: "",
    help: "Comma list of audiences that tokens must have.",
  },
  "authz-scoped-token-secret-file": {
    kind: "string",
    fallback: "",
    help: "HMAC secrets of v1 tokens; comma list, any verifies.",
  },
  "cache-enabled": { kind: "bool", fallback: true, help: "Accepted; sandboxes are always known from a watch." },
  "cache-namespace": { kind: "string", fallback: "", help: "Serve one namespace only; empty: all." },
  kubeconfig: { kind: "string", fallback: "", help: "Credentials; empty: in-cluster, else ~/.kube/config." },
  "access-log": { kind: "bool", fallback: true, help: "One line per request." },
  "zap-devel": { kind: "bool", fallback: false, help: "Accepted for compatibility." },
  "zap-encoder": { kind: "string", fallback: "json", help: "Accepted for compatibility; output is JSON." },
  "zap-log-level": { kind: "string", fallback: "info", help: "debug, info, error, panic or a number." },
  "zap-stacktrace-level": { kind: "string", fallback: "error", help: "Accepted for compatibility." },
  "zap-time-encoding": { kind: "string", fallback: "rfc3339", help: "Accepted for compatibility." },
  "authz-scoped-token-keys-file": { kind: "string", fallback: "", help: "Ed25519 key ring of v2 tokens, JSON." },
  "insecure-listen": { kind: "string", fallback: "", help: "Loopback address that asks for no credentials; off." },
  "tunnel-namespaces": {
    kind: "string",
    fallback: "",
    help: "Namespaces that loopback callers without credentials may reach.",
  },
  "path-routing-prefix": {
    kind: "string",
    fallback: "",
    help: "<prefix>/<namespace>/<sandbox>/<port>/...; empty: off.",
  },
  "host-domain": { kind: "string", fallback: "", help: "<port>-<sandbox>.<namespace>.<domain>; empty: off." },
  "link-secret-file": { kind: "string", fallback: "", help: "Secret of signed links; empty: no links." },
  "max-timeout": { kind: "duration", fallback: 86_400_000, help: "The longest X-Sandbox-Timeout that is honoured." },
  "connect-timeout": { kind: "duration", fallback: 2_000, help: "For one attempt to connect to a sandbox." },
  "hold-limit": { kind: "duration", fallback: 60_000, help: "How long a request waits for its sandbox to wake." },
  "held-requests-max": { kind: "int", fallback: 4096, help: "How many may wait at once." },
  "max-requests-per-client": { kind: "int", fallback: 0, help: "Open requests of one client address; 0: no limit." },
  "max-requests-per-sandbox": { kind: "int", fallback: 0, help: "Open requests of one sandbox; 0: no limit." },
  "websocket-idle-timeout": {
    kind: "duration",
    fallback: 0,
    help: "Silent upgraded connections are closed; 0: never.",
  },
  "websocket-max-lifetime": {
    kind: "duration",
    fallback: 0,
    help: "Upgraded connections are closed after this long; 0: never.",
  },
  "shutdown-delay": {
    kind: "duration",
    fallback: 3_000,
    help: "Unready for this long before connections are refused.",
  },
} as const satisfies FlagTable;

/** The values of the router's flags. */
export type RouterFlagValues = FlagValues<typeof routerFlags>;

/** Configuration that cannot be used; every reason at once. Ends the process with exit code 2. */
export class RouterConfigError extends Error {
  override readonly name = "RouterConfigError";
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Reads flags, file and environment, in that order of precedence, and checks them. Throws RouterConfigError. */
export function parseRouterFlags(args: readonly string[], environment: Environment): RouterFlagValues {
  try {
    const table = withEnvironment(environment);
    const first = parseGoFlags(table, args, tryParseGoDuration);
    const unexpected = first.rest.length > 0 ? [`unexpected argument "${first.rest[0]}"`] : [];
    const file = first.values.config === "" ? (environment["SANDBOX_ROUTER_CONFIG"] ?? "") : first.values.config;
    // What comes later on a command line wins, so the file's entries stand before the arguments.
    const { values } = parseGoFlags(table, [...fileArguments(file), ...args], tryParseGoDuration);
    const errors = [...unexpected, ...validate(values)];
    if (errors.length > 0) throw new RouterConfigError(errors.join("; "));
    return values;
  } catch (error) {
    if (error instanceof FlagError) throw new RouterConfigError(error.message, { cause: error });
    throw error;
  }
}

/** What `--help` prints; defaults are those that the environment sets. */
export function routerUsage(environment: Environment): string {
  const summary = "Runs the router on a cluster: requests to sandboxes, which it wakes where they sleep.";
  return goFlagsUsage("agent-sandbox router", summary, withEnvironment(environment));
}

function withEnvironment(environment: Environment): typeof routerFlags {
  const table: Record<keyof typeof routerFlags, FlagTable[string]> = { ...routerFlags };
  const set = (name: keyof typeof routerFlags, fallback: string | number | boolean | undefined): void => {
    if (fallback !== undefined) table[name] = { ...routerFlags[name], fallback };
  };
  const endpoint = (environment["OTEL_EXPORTER_OTLP_ENDPOINT"] ?? "") !== "";
  set("cluster-domain", nonBlank(environment["CLUSTER_DOMAIN"]));
  set("proxy-timeout", positiveSeconds(environment["PROXY_TIMEOUT_SECONDS"]));
  set("websocket-idle-timeout", positiveSeconds(environment["WEBSOCKET_IDLE_TIMEOUT_SECONDS"]));
  set("websocket-max-lifetime", positiveSeconds(environment["WEBSOCKET_MAX_LIFETIME_SECONDS"]));
  set("kubeconfig", nonBlank(environment["KUBECONFIG"]));
  set("enable-tracing", endpoint || (environment["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] ?? "") !== "");
  set("enable-otel-metrics", endpoint || (environment["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"] ?? "") !== "");
  return table as typeof routerFlags;
}

function nonBlank(text: string | undefined): string | undefined {
  return text === undefined || text.trim() === "" ? undefined : text.trim();
}

function positiveSeconds(text: string | undefined): number | undefined {
  const seconds = Number(nonBlank(text) ?? Number.NaN);
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : undefined;
}

function fileArguments(file: string): string[] {
  if (file === "") return [];
  let content: unknown;
  try {
    content = parse(readFileSync(file, "utf8"));
  } catch (cause) {
    throw new RouterConfigError(`config file ${file}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
  if (content === null || content === undefined) return [];
  if (typeof content !== "object" || Array.isArray(content))
    throw new RouterConfigError(`config file ${file}: expected a map of flags`);
  return Object.entries(content).map(([key, value]) => fileArgument(file, key, value));
}

function fileArgument(file: string, key: string, value: unknown): string {
  if (key === "config" || key === "version" || !(key in routerFlags))
    throw new RouterConfigError(`config file ${file}: unknown key "${key}"`);
  if (value === null) return `--${key}=`;
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean")
    throw new RouterConfigError(`config file ${file}: "${key}" must be a single value`);
  return `--${key}=${value}`;
}

const notNegative = [
  "shutdown-timeout",
  "max-request-body-bytes",
  "upstream-max-retries",
  "upstream-retry-initial-delay",
  "upstream-retry-max-delay",
  "max-requests-per-client",
  "max-requests-per-sandbox",
  "websocket-idle-timeout",
  "websocket-max-lifetime",
  "shutdown-delay",
] as const;
const positive = [
  "proxy-timeout",
  "response-header-timeout",
  "authz-tokenreview-ttl",
  "authz-tokenreview-cache-size",
  "max-timeout",
  "connect-timeout",
  "hold-limit",
  "held-requests-max",
] as const;

function validate(values: RouterFlagValues): string[] {
  const errors = [
    ...positive.filter((name) => values[name] <= 0).map((name) => `--${name} must be greater than 0`),
    ...notNegative.filter((name) => values[name] < 0).map((name) => `--${name} must not be negative`),
    ...validateListeners(values),
    ...validateTls(values),
    ...validateAccess(values),
  ];
  if (values["cluster-domain"] === "") errors.push("--cluster-domain must not be empty");
  const prefix = values["path-routing-prefix"];
  if (prefix !== "" && !/^(\/[A-Za-z0-9._~-]+)+$/.test(prefix))
    errors.push("--path-routing-prefix must start with a slash and not end with one");
  return errors;
}

function validateListeners(values: RouterFlagValues): string[] {
  const errors: string[] = [];
  const addresses = [
    "http-bind-address",
    "https-bind-address",
    "metrics-bind-address",
    "health-probe-bind-address",
  ] as const;
  for (const name of [...addresses, "insecure-listen"] as const) {
    try {
      parseBindAddress(values[name]);
    } catch {
      errors.push(`--${name} "${values[name]}" is not host:port`);
    }
  }
  if (values["http-bind-address"] === "" && values["https-bind-address"] === "")
    errors.push("one of --http-bind-address and --https-bind-address is required");
  const insecure = values["insecure-listen"];
  if (insecure !== "" && errors.length === 0 && !isLoopback(parseBindAddress(insecure)?.host ?? ""))
    errors.push("--insecure-listen must be a loopback address: a caller of it needs no credentials");
  return errors;
}

/** Whether an address is a loopback address. */
function isLoopback(host: string): boolean {
  if (host === "localhost" || host === "::1") return true;
  const v4 = host.startsWith("::ffff:") ? host.slice(7) : host;
  return isIP(v4) === 4 && v4.startsWith("127.");
}

function validateTls(values: RouterFlagValues): string[] {
  const errors: string[] = [];
  const mode = values["mtls-mode"];
  const isTls = values["https-bind-address"] !== "";
  if (isTls && (values["tls-cert-file"] === "" || values["tls-key-file"] === ""))
    errors.push("--https-bind-address needs --tls-cert-file and --tls-key-file");
  if (!["off", "optional", "required"].includes(mode))
    errors.push(`--mtls-mode "${mode}" is not off, optional or required`);
  else if (mode !== "off" && !isTls) errors.push("--mtls-mode needs --https-bind-address");
  else if (mode !== "off" && values["tls-client-ca-file"] === "") errors.push("--mtls-mode needs --tls-client-ca-file");
  return errors;
}

function validateAccess(values: RouterFlagValues): string[] {
  const mode = values["authz-mode"];
  if (!["access-review", "tokenreview", "scoped-token", "allow-all"].includes(mode))
    return [`--authz-mode "${mode}" is not access-review, tokenreview, scoped-token or allow-all`];
  const hasKeys = values["authz-scoped-token-secret-file"] !== "" || values["authz-scoped-token-keys-file"] !== "";
  return mode === "scoped-token" && !hasKeys
    ? ["--authz-mode=scoped-token needs --authz-scoped-token-secret-file or --authz-scoped-token-keys-file"]
    : [];
}
