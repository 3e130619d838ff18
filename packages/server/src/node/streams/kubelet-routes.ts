import { parsePort } from "@agent-sandbox/kube";
import type { LogOptions } from "../logs/read-logs.ts";
import type { Access } from "./kubelet-auth.ts";
import type { RemoteCommandOptions } from "./remote-command.ts";

/** A pod and one of its containers, as a URL names them. */
export interface ContainerRef {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
}

/** What a request to the node is about. */
export type KubeletRoute =
  | {
      readonly kind: "exec";
      readonly ref: ContainerRef;
      readonly command: readonly string[];
      readonly streams: RemoteCommandOptions;
    }
  | { readonly kind: "attach"; readonly ref: ContainerRef; readonly streams: RemoteCommandOptions }
  | {
      readonly kind: "port-forward";
      readonly namespace: string;
      readonly pod: string;
      readonly ports: readonly number[];
    }
  | { readonly kind: "logs"; readonly ref: ContainerRef; readonly options: LogOptions; readonly previous: boolean }
  | { readonly kind: "summary" }
  | { readonly kind: "resource-metrics" }
  | { readonly kind: "pod-metrics" }
  | { readonly kind: "metrics" }
  | { readonly kind: "pods" }
  | { readonly kind: "healthz" };

/** A route that cannot be read; becomes a 400. */
export class RouteError extends Error {
  override readonly name = "RouteError";
}

/** Reads a URL in the kubelet's shape; undefined for a path that does not exist. */
export function parseRoute(url: URL, nowMs: number): KubeletRoute | undefined {
  const [kind, namespace, pod, third, fourth] = url.pathname.split("/").slice(1).map(decodeURIComponent);
  // Some clients put the pod's uid between pod and container.
  const container = fourth ?? third;
  const query = url.searchParams;
  if (kind === "portForward" && namespace && pod)
    return { kind: "port-forward", namespace, pod, ports: query.getAll("port").flatMap(parsePorts) };
  if (namespace && pod && container) {
    const ref = { namespace, pod, container };
    if (kind === "exec") return { kind: "exec", ref, command: query.getAll("command"), streams: parseStreams(query) };
    if (kind === "attach") return { kind: "attach", ref, streams: parseStreams(query) };
    if (kind === "containerLogs")
      return { kind: "logs", ref, options: parseLogOptions(query, nowMs), previous: isTrue(query.get("previous")) };
  }
  switch (url.pathname) {
    case "/stats/summary":
      return { kind: "summary" };
    case "/metrics/resource":
      return { kind: "resource-metrics" };
    case "/metrics/cadvisor":
      return { kind: "pod-metrics" };
    case "/metrics":
      return { kind: "metrics" };
    case "/pods":
    case "/runningpods/":
      return { kind: "pods" };
    case "/healthz":
      return { kind: "healthz" };
    default:
      return undefined;
  }
}

/** What a caller must be allowed to do. A command is a write whatever the method: WebSocket clients say GET. */
export function accessFor(route: KubeletRoute): Access {
  switch (route.kind) {
    case "exec":
    case "attach":
    case "port-forward":
      return { verb: "create", subresource: "proxy" };
    case "logs":
      return { verb: "get", subresource: "proxy" };
    case "summary":
      return { verb: "get", subresource: "stats" };
    case "resource-metrics":
    case "pod-metrics":
    case "metrics":
      return { verb: "get", subresource: "metrics" };
    case "pods":
      return { verb: "get", subresource: "pods" };
    case "healthz":
      return { verb: "get", subresource: "healthz" };
    default:
      return route satisfies never;
  }
}

/** The API server says `input`, `output`, `error`; clients that come directly say `stdin`, `stdout`, `stderr`. */
function parseStreams(query: URLSearchParams): RemoteCommandOptions {
  const has = (...names: string[]): boolean => names.some((name) => isTrue(query.get(name)));
  return {
    stdin: has("input", "stdin"),
    stdout: has("output", "stdout"),
    stderr: has("error", "stderr"),
    tty: has("tty"),
  };
}

function isTrue(value: string | null): boolean {
  return value === "1" || value?.toLowerCase() === "true";
}

function parsePorts(text: string): number[] {
  return text.split(",").map((one) => {
    try {
      return parsePort(one);
    } catch (cause) {
      throw new RouteError(`port: ${JSON.stringify(one)} is not a port`, { cause });
    }
  });
}

function parseLogOptions(query: URLSearchParams, nowMs: number): LogOptions {
  const tailLines = parseCount(query, "tailLines") ?? parseCount(query, "tail");
  const sinceSeconds = parseCount(query, "sinceSeconds");
  const sinceTime = query.get("sinceTime");
  const limitBytes = parseCount(query, "limitBytes");
  const sinceMs =
    sinceTime === null ? (sinceSeconds === undefined ? undefined : nowMs - sinceSeconds * 1000) : Date.parse(sinceTime);
  if (Number.isNaN(sinceMs)) throw new RouteError(`sinceTime: ${JSON.stringify(sinceTime)} is not a time`);
  const stream = query.get("stream");
  return {
    follow: isTrue(query.get("follow")),
    timestamps: isTrue(query.get("timestamps")),
    ...(tailLines !== undefined && { tailLines }),
    ...(sinceMs !== undefined && { sinceMs }),
    ...(limitBytes !== undefined && { limitBytes }),
    ...(stream === "Stdout" && { stream: "stdout" as const }),
    ...(stream === "Stderr" && { stream: "stderr" as const }),
  };
}

function parseCount(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null || text === "") return undefined;
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0) throw new RouteError(`${name}: ${JSON.stringify(text)} is not a count`);
  return value;
}
