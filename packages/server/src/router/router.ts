import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";
import type { Credentials, ListenerTrust } from "./access/caller.ts";
import { bearerOf } from "./access/caller.ts";
import type { Gate } from "./access/gate.ts";
import { cookieToken, isForeignOrigin, linkCookie, setLinkCookie, takeLinkToken } from "./access/signed-link.ts";
import { type AddressingOptions, parseTarget } from "./addressing/parse-target.ts";
import type { Target } from "./addressing/target.ts";
import type { ExchangeCounter } from "./limits.ts";
import type { LinkService } from "./link-service.ts";
import type { Dialer } from "./proxy/dial.ts";
import { type GrpcForwarder, grpcStreamOf, refuseGrpc } from "./proxy/forward-grpc.ts";
import { type ForwardOptions, forwardHttp } from "./proxy/forward-http.ts";
import { forwardUpgrade, type UpgradeOptions } from "./proxy/forward-upgrade.ts";
import { noNamespace, type RouterMetrics } from "./router-metrics.ts";
import { RoutingError } from "./routing-error.ts";
import type { ActivityReporter } from "./sandboxes/activity.ts";
import type { ReadyRoute, Waker } from "./sandboxes/waker.ts";
import { certificateUser } from "./sniffing-server.ts";

/** The parts a router is made of. */
export interface RouterParts {
  readonly addressing: AddressingOptions;
  readonly gate: Gate;
  readonly waker: Waker;
  readonly activity: ActivityReporter;
  readonly counter: ExchangeCounter;
  readonly metrics: RouterMetrics;
  readonly dialer: Dialer;
  readonly grpc: GrpcForwarder;
  readonly links?: LinkService;
  readonly forward: Omit<ForwardOptions, "ownCookie">;
  readonly upgrade: Omit<UpgradeOptions, "ownCookie" | "dialer">;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly accessLog: boolean;
}

/** What is known of a request when it ends, for log and metrics. */
interface Account {
  readonly startMs: number;
  namespace: string;
  sandbox: string;
  status: number;
}

/** How long a browser keeps a link's cookie; the token's own expiry inside it is what counts. */
const cookieMaxAgeSeconds = 7 * 24 * 3600;

/** Name to sandbox: addresses, admits, wakes and forwards one request after the other. */
export class Router {
  readonly #parts: RouterParts;

  constructor(parts: RouterParts) {
    this.#parts = parts;
  }

  /** Serves one request of either version of HTTP. */
  onRequest(
    request: IncomingMessage,
    response: ServerResponse,
    trust: ListenerTrust,
    protocol: "http" | "https",
  ): void {
    const account = this.#open();
    this.#serve(request, response, { trust, protocol, account })
      .catch((error: unknown) => this.#refuse(request, response, error, account))
      .finally(() => {
        if (account.status === 0) account.status = response.statusCode;
        this.#close(request, account);
      });
  }

  /** Serves one upgrade. */
  onUpgrade(
    request: IncomingMessage,
    socket: Duplex,
    head: Buffer,
    trust: ListenerTrust,
    protocol: "http" | "https",
  ): void {
    const account = this.#open();
    socket.on("error", () => socket.destroy());
    this.#serveUpgrade(request, { socket, head, trust, protocol, account })
      .catch((error: unknown) => {
        const refusal = this.#asRefusal(error, account);
        account.status = refusal.status;
        socket.end(refusalText(refusal));
      })
      .finally(() => this.#close(request, account));
  }

  async #serve(
    request: IncomingMessage,
    response: ServerResponse,
    { trust, protocol, account }: { trust: ListenerTrust; protocol: "http" | "https"; account: Account },
  ): Promise<void> {
    const rawPath = request.url ?? "/";
    if (request.headers["x-sandbox-id"] === undefined && (await this.#serveOwn(rawPath, request, response, trust)))
      return;
    const link = takeLinkToken(rawPath);
    const target = parseTarget(link?.path ?? rawPath, request.headers, this.#parts.addressing);
    const admitted = this.#admit(request, target, trust, link?.token);
    if (admitted !== undefined) await admitted;
    account.namespace = target.namespace;
    account.sandbox = target.name;
    if (link !== undefined) return redirectWithCookie(response, target, link.token, protocol === "https");
    const leave = this.#parts.counter.enter(request.socket.remoteAddress ?? "", `${target.namespace}/${target.name}`);
    const gone = new AbortController();
    response.once("close", () => {
      if (!response.writableFinished) gone.abort(callerGone());
    });
    try {
      const route = await this.#route(target, gone.signal);
      const end = this.#parts.activity.track(route);
      try {
        await this.#forward(request, response, { target, route, protocol, signal: gone.signal });
      } finally {
        end();
      }
    } finally {
      leave();
    }
  }

  async #forward(
    request: IncomingMessage,
    response: ServerResponse,
    {
      target,
      route,
      protocol,
      signal,
    }: { target: Target; route: ReadyRoute; protocol: "http" | "https"; signal: AbortSignal },
  ): Promise<void> {
    const address = addressOf(route, target);
    const call = grpcStreamOf(request);
    if (call !== undefined) {
      return this.#parts.grpc.forward(call, request.headers, { target, address });
    }
    await forwardHttp(
      { request, response, target, route, address, protocol, signal },
      { ...this.#parts.forward, ownCookie: linkCookie },
    );
  }

  async #serveUpgrade(
    request: IncomingMessage,
    {
      socket,
      head,
      trust,
      protocol,
      account,
    }: { socket: Duplex; head: Buffer; trust: ListenerTrust; protocol: "http" | "https"; account: Account },
  ): Promise<void> {
    const rawPath = request.url ?? "/";
    const link = takeLinkToken(rawPath);
    const target = parseTarget(link?.path ?? rawPath, request.headers, this.#parts.addressing);
    await this.#admit(request, target, trust, link?.token);
    account.namespace = target.namespace;
    account.sandbox = target.name;
    const leave = this.#parts.counter.enter(request.socket.remoteAddress ?? "", `${target.namespace}/${target.name}`);
    const gone = new AbortController();
    socket.once("close", () => gone.abort(callerGone()));
    try {
      const route = await this.#route(target, gone.signal);
      const end = this.#parts.activity.track(route);
      const exchange = { request, socket, head, target, address: addressOf(route, target), protocol };
      const options = { ...this.#parts.upgrade, dialer: this.#parts.dialer, ownCookie: linkCookie };
      account.status = await forwardUpgrade(exchange, options).finally(end);
    } finally {
      leave();
    }
  }

  /** Paths of the router itself; a sandbox's own `/healthz` is reached by naming the sandbox. */
  async #serveOwn(
    rawPath: string,
    request: IncomingMessage,
    response: ServerResponse,
    trust: ListenerTrust,
  ): Promise<boolean> {
    if (rawPath === "/healthz") {
      answerJson(response, 200, { status: "ok" });
      return true;
    }
    if (this.#parts.links === undefined || !this.#parts.links.owns(rawPath)) return false;
    await this.#parts.links.serve(request, response, (target) => this.#admit(request, target, trust, undefined));
    return true;
  }

  #admit(
    request: IncomingMessage,
    target: Target,
    trust: ListenerTrust,
    linkToken: string | undefined,
  ): void | Promise<void> {
    const { gate, metrics } = this.#parts;
    const bearer = bearerOf(request);
    const cookie = linkToken ?? (bearer === undefined ? cookieToken(request.headers) : undefined);
    // A cookie travels with requests that other sites cause; a token in the link or header does not.
    if (cookie !== undefined && linkToken === undefined && isForeignOrigin(request.headers)) {
      throw new RoutingError(403, "origin not allowed for cookie-authenticated request");
    }
    const certificate = certificateUser(request);
    const credentials: Credentials = {
      ...(certificate !== undefined && { certificateUser: certificate }),
      ...(bearer !== undefined && { bearer }),
      ...(cookie !== undefined && { linkToken: cookie }),
    };
    const allowed = gate.admit(target, credentials, trust);
    if (allowed === undefined) return metrics.decision(target.namespace, "allow");
    return allowed.then(() => metrics.decision(target.namespace, "allow"));
  }

  async #route(target: Target, signal: AbortSignal): Promise<ReadyRoute> {
    const found = this.#parts.waker.ready(target.namespace, target.name, signal);
    if (!(found instanceof Promise)) return found;
    try {
      const route = await found;
      this.#parts.metrics.held("ready");
      return route;
    } catch (error) {
      this.#parts.metrics.held("refused");
      throw error;
    }
  }

  #refuse(request: IncomingMessage, response: ServerResponse, error: unknown, account: Account): void {
    const refusal = this.#asRefusal(error, account);
    account.status = refusal.status;
    if (response.headersSent || response.destroyed) return;
    const call = grpcStreamOf(request);
    if (call !== undefined) return refuseGrpc(call, refusal);
    if (refusal.retryAfterSeconds !== undefined) response.setHeader("Retry-After", String(refusal.retryAfterSeconds));
    answerJson(response, refusal.status, { detail: refusal.message });
    // What is left of the body is not wanted; reading it would hold the connection for as long as the caller likes.
    if (!request.complete) request.resume();
  }

  #asRefusal(error: unknown, { namespace }: Account): RoutingError {
    const { logger, metrics } = this.#parts;
    if (error instanceof RoutingError) {
      if (error.status === 401 || error.status === 403) metrics.decision(namespace, "deny");
      if (error.cause !== undefined) {
        metrics.upstreamError(namespace, error.cause);
        logger.debug({ err: error }, "upstream failure");
      }
      return error;
    }
    logger.error({ err: error }, "request failed");
    return new RoutingError(500, "An internal error occurred in the proxy.", { cause: error });
  }

  #open(): Account {
    this.#parts.metrics.begin();
    return { startMs: performance.now(), namespace: noNamespace, sandbox: "", status: 0 };
  }

  #close(request: IncomingMessage, { startMs, namespace, sandbox, status }: Account): void {
    const seconds = (performance.now() - startMs) / 1000;
    const method = request.method ?? "";
    this.#parts.metrics.end({ method, status, namespace, seconds });
    if (!this.#parts.accessLog) return;
    const path = (request.url ?? "").split("?")[0];
    const fields = {
      method,
      path,
      status,
      duration_ms: Math.round(seconds * 1000),
      sandbox_id: sandbox,
      sandbox_namespace: namespace,
    };
    this.#parts.logger.info(
      { ...fields, client_ip: request.socket?.remoteAddress, user_agent: request.headers["user-agent"] },
      "request",
    );
  }
}

/** The status under which log and metrics count a caller who left; nobody reads it as an answer. */
function callerGone(): RoutingError {
  return new RoutingError(499, "the caller went away");
}

/** The address to dial; a hint of the caller's must be one of the sandbox's own. */
function addressOf(route: ReadyRoute, target: Target): string {
  const { addresses } = route.state;
  if (target.uid !== undefined && target.uid !== route.uid) throw new RoutingError(403, "forbidden");
  // A stale hint is ignored, not refused: the sandbox may have moved since the client read its address.
  return target.podIp !== undefined && addresses.includes(target.podIp) ? target.podIp : (addresses[0] as string);
}

function redirectWithCookie(response: ServerResponse, target: Target, token: string, secure: boolean): void {
  response.writeHead(302, {
    Location: target.form === "path" ? `${target.pathPrefix}${target.path}` : target.path,
    "Set-Cookie": setLinkCookie(token, target, { secure, maxAgeSeconds: cookieMaxAgeSeconds }),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Length": "0",
  });
  response.end();
}

/** Answers with JSON and a newline, as the reference does. */
export function answerJson(response: ServerResponse, status: number, body: object): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, { "Content-Type": "application/json", "Content-Length": String(Buffer.byteLength(text)) });
  response.end(text);
}

function refusalText(refusal: RoutingError): string {
  const body = `${JSON.stringify({ detail: refusal.message })}\n`;
  const retry = refusal.retryAfterSeconds === undefined ? "" : `Retry-After: ${refusal.retryAfterSeconds}\r\n`;
  return `HTTP/1.1 ${refusal.status} Refused\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${retry}Connection: close\r\n\r\n${body}`;
}
