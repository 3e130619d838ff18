import type { RoutedExchange } from "./exchange.ts";

/** Headers that speak of one connection; they never pass. `te: trailers` is the exception and is handled apart. */
const hopByHop: ReadonlySet<string> = new Set([
  "connection",
  "proxy-connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "http2-settings",
]);

/** Whether a header, in lower case, speaks of one connection only. */
export function isHopByHop(lower: string): boolean {
  return hopByHop.has(lower);
}

/** What must not reach a sandbox: credentials for the router, its addressing, and forged origins of the request. */
const routerOnly: ReadonlySet<string> = new Set([
  "authorization",
  "host",
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-proto",
  "x-sandbox-id",
  "x-sandbox-namespace",
  "x-sandbox-port",
  "x-sandbox-pod-ip",
  "x-sandbox-uid",
  "x-sandbox-timeout",
]);

/** Whether a header, in lower case, is for the router and not for what is behind it. */
export function isForRouter(lower: string): boolean {
  return lower.startsWith(":") || routerOnly.has(lower);
}

/** On a refusal of the router's: no sandbox has seen the request, so that it may be sent again whatever it asks for. A sandbox cannot say so. */
export const unsentHeader = "x-sandbox-unsent";

/** What the router adds to a forwarded request. */
export interface ForwardedRequest {
  /** Name, value, name, value ... as received. */
  readonly rawHeaders: readonly string[];
  readonly upstreamHost: string;
  readonly clientAddress: string;
  readonly originalHost: string;
  readonly protocol: "http" | "https";
  /** The router's own cookie, removed from what the sandbox sees. */
  readonly ownCookie: string;
  /** An upgrade keeps `connection` and `upgrade`, and loses `origin`. */
  readonly isUpgrade: boolean;
}

/** An address and port as they stand in `Host`. */
export function formatHost(address: string, port: number): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** The head of a forwarded request as it goes over the wire. */
export function requestHead(exchange: RoutedExchange, ownCookie: string, isChunked: boolean): string {
  const { request, target, address, protocol } = exchange;
  const headers = forwardedHeaders({
    rawHeaders: request.rawHeaders,
    upstreamHost: formatHost(address, target.port),
    clientAddress: request.socket.remoteAddress ?? "",
    originalHost: request.headers.host ?? String(request.headers[":authority"] ?? ""),
    protocol,
    ownCookie,
    isUpgrade: false,
  });
  let head = `${request.method} ${target.path} HTTP/1.1\r\n`;
  for (let index = 0; index < headers.length; index += 2) head += `${headers[index]}: ${headers[index + 1]}\r\n`;
  return isChunked ? `${head}Transfer-Encoding: chunked\r\n\r\n` : `${head}\r\n`;
}

/** The headers a sandbox sees, as a flat list. */
export function forwardedHeaders(request: ForwardedRequest): string[] {
  const { rawHeaders, isUpgrade } = request;
  const named = connectionTokens(rawHeaders);
  const out: string[] = ["Host", request.upstreamHost];
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    const value = rawHeaders[index + 1] as string;
    const lower = name.toLowerCase();
    if (isForRouter(lower) || named?.has(lower) === true) continue;
    if (hopByHop.has(lower)) {
      if (isUpgrade && lower === "upgrade") out.push("Connection", "Upgrade", name, value);
      else if (lower === "te" && value.toLowerCase().includes("trailers")) out.push("TE", "trailers");
      else if (lower === "trailer") out.push(name, value);
      continue;
    }
    if (isUpgrade && lower === "origin") continue;
    if (lower === "cookie") {
      const cookies = withoutCookie(value, request.ownCookie);
      if (cookies !== "") out.push(name, cookies);
      continue;
    }
    out.push(name, value);
  }
  out.push("X-Forwarded-For", request.clientAddress, "X-Forwarded-Host", request.originalHost);
  out.push("X-Forwarded-Proto", request.protocol);
  return out;
}

/** Whether a header list carries a body length or chunking, that is, whether a request has a body. */
export function hasBody(headers: {
  readonly "content-length"?: string | undefined;
  readonly "transfer-encoding"?: string | undefined;
}): boolean {
  return (
    headers["transfer-encoding"] !== undefined ||
    (headers["content-length"] !== undefined && headers["content-length"] !== "0")
  );
}

/** Headers that `Connection` names beside `close`, `keep-alive` and `upgrade`; almost never any. */
function connectionTokens(rawHeaders: readonly string[]): ReadonlySet<string> | undefined {
  let tokens: Set<string> | undefined;
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const header = rawHeaders[index] as string;
    if (header.length !== 10 || header.toLowerCase() !== "connection") continue;
    for (const token of (rawHeaders[index + 1] as string).toLowerCase().split(",")) {
      const name = token.trim();
      if (name === "close" || name === "keep-alive" || name === "upgrade" || name === "") continue;
      tokens = (tokens ?? new Set()).add(name);
    }
  }
  return tokens;
}

/** The pairs of a `Cookie` header without the router's own. */
export function withoutCookie(value: string, own: string): string {
  if (!value.includes(own)) return value;
  return value
    .split(";")
    .map((pair) => pair.trim())
    .filter((pair) => !pair.startsWith(`${own}=`))
    .join("; ");
}
