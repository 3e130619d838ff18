import type { IncomingHttpHeaders } from "node:http";
import { isIPv4, isIPv6 } from "node:net";
import { RoutingError } from "../routing-error.ts";
import type { Target } from "./target.ts";

/** Which forms are on, beside headers, which always are. */
export interface AddressingOptions {
  /** `<port>-<name>.<namespace>.<domain>`; absent turns the host form off. */
  readonly hostDomain?: string;
  /** `<prefix>/<namespace>/<name>/<port>/...`; absent turns the path form off. Starts with a slash and does not end with one. */
  readonly pathPrefix?: string;
  readonly allowLoopbackPodIp: boolean;
}

/** The published clients' port when they name none. */
const defaultPort = 8888;
const labelPattern = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/**
 * Finds out what a request wants to reach. A path or host that looks like ours and is malformed is an error and never
 * falls back to headers: a browser's request must not be redirected by a header some script added.
 */
export function parseTarget(rawPath: string, headers: IncomingHttpHeaders, options: AddressingOptions): Target {
  const { pathPrefix, hostDomain } = options;
  if (pathPrefix !== undefined && (rawPath === pathPrefix || rawPath.startsWith(`${pathPrefix}/`))) {
    return parsePath(rawPath, pathPrefix);
  }
  if (hostDomain !== undefined) {
    const host = hostOf(headers);
    if (host.endsWith(`.${hostDomain}`)) return parseHost(host.slice(0, -hostDomain.length - 1), rawPath);
  }
  return parseHeaders(rawPath, headers, options);
}

/** Whether a request names a sandbox other than by its path. */
export function namesSandbox(headers: IncomingHttpHeaders, { hostDomain }: AddressingOptions): boolean {
  if (headers["x-sandbox-id"] !== undefined) return true;
  return hostDomain !== undefined && hostOf(headers).endsWith(`.${hostDomain}`);
}

function parsePath(rawPath: string, prefix: string): Target {
  const match = /^\/([^/?]+)\/([^/?]+)\/([^/?]+)([/?].*)?$/.exec(rawPath.slice(prefix.length));
  const [, namespace = "", name = "", port = "", rest = ""] = match ?? [];
  const parsedPort = tryParsePort(port);
  if (!labelPattern.test(namespace) || !labelPattern.test(name) || parsedPort === undefined) {
    throw new RoutingError(400, `Invalid path; expected ${prefix}/<namespace>/<sandbox>/<port>/...`);
  }
  const path = rest.startsWith("/") ? rest : `/${rest}`;
  return {
    form: "path",
    namespace,
    name,
    port: parsedPort,
    path,
    pathPrefix: `${prefix}/${namespace}/${name}/${port}`,
  };
}

function parseHost(labels: string, rawPath: string): Target {
  const match = /^(\d{1,5})-([^.]+)\.([^.]+)$/.exec(labels);
  const [, port = "", name = "", namespace = ""] = match ?? [];
  const parsedPort = tryParsePort(port);
  if (!labelPattern.test(namespace) || !labelPattern.test(name) || parsedPort === undefined) {
    throw new RoutingError(400, "Invalid host name; expected <port>-<sandbox>.<namespace>.<domain>");
  }
  return { form: "host", namespace, name, port: parsedPort, path: rawPath, pathPrefix: "" };
}

function parseHeaders(rawPath: string, headers: IncomingHttpHeaders, options: AddressingOptions): Target {
  const name = first(headers["x-sandbox-id"]);
  if (name === "") throw new RoutingError(400, "X-Sandbox-ID header is required.");
  if (!labelPattern.test(name)) throw new RoutingError(400, "Invalid sandbox ID format.");
  const namespace = first(headers["x-sandbox-namespace"]) || "default";
  if (!labelPattern.test(namespace)) throw new RoutingError(400, "Invalid namespace format.");
  const port = parseHeaderPort(first(headers["x-sandbox-port"]));
  const podIp = first(headers["x-sandbox-pod-ip"]);
  if (podIp !== "" && !isUsablePodIp(podIp, options.allowLoopbackPodIp)) {
    throw new RoutingError(400, "Invalid target IP address.");
  }
  const uid = first(headers["x-sandbox-uid"]);
  const timeoutMs = parseTimeout(first(headers["x-sandbox-timeout"]));
  const target: Target = { form: "header", namespace, name, port, path: rawPath, pathPrefix: "" };
  if (uid === "" && podIp === "" && timeoutMs === undefined) return target;
  return {
    ...target,
    ...(uid !== "" && { uid }),
    ...(podIp !== "" && { podIp }),
    ...(timeoutMs !== undefined && { timeoutMs }),
  };
}

function parseHeaderPort(text: string): number {
  if (text === "") return defaultPort;
  const port = tryParsePort(text) ?? tryParsePort(text.replace(/^\+/, "").replace(/^0+(?=\d)/, ""));
  if (port === undefined) throw new RoutingError(400, "Invalid port format.");
  return port;
}

function tryParsePort(text: string): number | undefined {
  if (!/^[1-9]\d{0,4}$/.test(text)) return undefined;
  const port = Number(text);
  return port <= 65_535 ? port : undefined;
}

/** Seconds as published clients print them (`60`, `1.5`); anything else counts as not sent. */
function parseTimeout(text: string): number | undefined {
  const seconds = Number(text);
  return text !== "" && Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : undefined;
}

function isUsablePodIp(text: string, allowLoopback: boolean): boolean {
  if (isIPv4(text)) {
    const [a = 0, b = 0] = text.split(".").map(Number);
    if (a === 127) return allowLoopback;
    return a !== 0 && a < 224 && !(a === 169 && b === 254);
  }
  if (!isIPv6(text) || text.includes("%")) return false;
  const lower = text.toLowerCase();
  if (lower === "::1") return allowLoopback;
  return lower !== "::" && !/^fe[89ab]/.test(lower) && !lower.startsWith("ff");
}

function hostOf(headers: IncomingHttpHeaders): string {
  const authority = headers[":authority"];
  const host = (typeof authority === "string" ? authority : headers.host) ?? "";
  return host.replace(/:\d+$/, "").toLowerCase();
}

function first(value: string | string[] | undefined): string {
  if (value === undefined) return "";
  const text = Array.isArray(value) ? (value[0] ?? "") : value;
  // Node joins repeated headers with a comma; the first value counts.
  const comma = text.indexOf(",");
  return (comma === -1 ? text : text.slice(0, comma)).trim();
}
