import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "@agent-sandbox/kube";
import type { Logger } from "../telemetry/logger.ts";
import { AdmissionMemory } from "./access/admission-memory.ts";
import type { Credentials, ListenerTrust } from "./access/caller.ts";
import { bearerOf } from "./access/caller.ts";
import type { Gate } from "./access/gate.ts";
import {
  cookieToken,
  isBrowser,
  isForeignOrigin,
  isForLoopback,
  linkParameter,
  originForBrowser,
  setLinkCookie,
  takeLinkToken,
} from "./access/signed-link.ts";
import { type AddressingOptions, namesSandbox, parseTarget } from "./addressing/parse-target.ts";
import type { Target } from "./addressing/target.ts";
import type { ExchangeCounter } from "./limits.ts";
import type { LinkService } from "./link-service.ts";
import { explainRefusal } from "./nothing-listens.ts";
import type { Exchange } from "./proxy/exchange.ts";
import { type GrpcForwarder, grpcStreamOf, refuseGrpc } from "./proxy/forward-grpc.ts";
import { type ForwardOptions, forwardHttp } from "./proxy/forward-http.ts";
import { forwardUpgrade, type UpgradeExchange, type UpgradeOptions } from "./proxy/forward-upgrade.ts";
import { unsentHeader } from "./proxy/headers.ts";
import { http2ResponseOf } from "./proxy/http2-face.ts";
import type { RouterMetrics } from "./router-metrics.ts";
import type { RouterTuning } from "./router-options.ts";
import { RoutingError } from "./routing-error.ts";
import type { ActivityReporter } from "./sandboxes/activity.ts";
import type { SandboxTable } from "./sandboxes/sandbox-table.ts";
import type { ReadyRoute, Waker } from "./sandboxes/waker.ts";
import { certificateUser } from "./sniffing-server.ts";
import { Visit } from "./visit.ts";

/** The parts a router is made of. */
export interface RouterParts {
  readonly addressing: AddressingOptions;
  readonly gate: Gate;
  readonly waker: Waker;
  readonly activity: ActivityReporter;
  readonly counter: ExchangeCounter;
  readonly metrics: RouterMetrics;
  readonly table: SandboxTable;
  readonly grpc: GrpcForwarder;
  readonly links?: LinkService;
  forward: ForwardOptions;
  readonly upgrade: UpgradeOptions;
  readonly clock: Clock;
  readonly logger: Logger;
  accessLog: boolean;
  readonly tracing: boolean;
}

/** How long a browser keeps a link's cookie; the token's own expiry inside it is what counts. */
const cookieMaxAgeSeconds = 7 * 24 * 3600;

/** What a listener knows of a request besides what it says itself. */
export interface Arrival {
  readonly trust: ListenerTrust;
  readonly protocol: "http" | "https";
}

/** Name to sandbox: addresses, admits, wakes and forwards one request after the other. */
export class Router {
  readonly #parts: RouterParts;
  readonly #doors = new AdmissionMemory();

  constructor(parts: RouterParts) {
    this.#parts = parts;
  }

  /** Serves one request of either version of HTTP. */
  onRequest(request: IncomingMessage, response: ServerResponse, arrival: Arrival): void {
    const visit = new Visit(this.#parts, request);
    // The way of a request that need not wait has no promise in it: it is most of them.
    const refuse = (error: unknown): void => this.#refuse(request, response, error, visit);
    try {
      const pending = this.#serve(request, response, arrival, visit);
      if (pending !== undefined) pending.catch(refuse);
    } catch (error) {
      refuse(error);
    }
  }

  /** Serves one upgrade. */
  onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer, arrival: Arrival): void {
    const visit = new Visit(this.#parts, request);
    socket.on("error", () => socket.destroy());
    this.#serveUpgrade(request, { socket, head, arrival, visit })
      .then((status) => visit.end(status))
      .catch((error: unknown) => {
        const refusal = this.#asRefusal(error, visit);
        socket.end(refusalText(refusal));
        visit.end(refusal.status);
      });
  }

  #serve(request: IncomingMessage, response: ServerResponse, arrival: Arrival, visit: Visit): void | Promise<void> {
    const rawPath = request.url ?? "/";
    const { addressing, links } = this.#parts;
    if (isOwnPath(rawPath) && !namesSandbox(request.headers, addressing)) {
      if (rawPath === "/healthz") {
        answerHealth(response);
        return visit.end(200);
      }
      if (links?.owns(rawPath) === true) {
        return this.#serveLinks(links, request, response, arrival).then(() => visit.end(response.statusCode));
      }
    }
    const link = takeLinkToken(rawPath);
    const asked = parseTarget(link?.path ?? rawPath, request.headers, addressing);
    if (request.httpVersionMajor >= 2) assertSendable(request, asked);
    const go = (target: Target): void | Promise<void> => {
      visit.admitted(target);
      if (link === undefined || !isBrowser(request.headers))
        return this.#connect({ request, response, target, protocol: arrival.protocol }, visit);
      const origin = originForBrowser(request.headers, target, addressing.hostDomain);
      if (origin !== undefined) redirect(response, origin + withToken(target.path, link.token));
      else redirectWithCookie(response, target, link.token, arrival.protocol === "https");
      visit.end(302);
    };
    const admitted = this.#admit(request, asked, arrival.trust, link?.token);
    return admitted instanceof Promise ? admitted.then(go) : go(admitted);
  }

  /** Finds the sandbox, wakes it if need be, and forwards. */
  #connect(exchange: Exchange, visit: Visit): void | Promise<void> {
    const { request, response, target } = exchange;
    visit.enter();
    this.#assertIncarnation(target);
    const found = this.#parts.waker.ready(target, () => goneSignal(response));
    if (!(found instanceof Promise)) return this.#forward(request, exchange, found, visit);
    return this.#held(found).then((route) => this.#forward(request, exchange, route, visit));
  }

  #forward(request: IncomingMessage, exchange: Exchange, route: ReadyRoute, visit: Visit): void | Promise<void> {
    const { target, response, protocol } = exchange;
    const address = addressOf(route, target);
    visit.routed(route);
    const currentAddress = (): string => this.#currentAddress(target) ?? address;
    const call = grpcStreamOf(request);
    const http2Response = http2ResponseOf(response);
    if (call !== undefined && http2Response !== undefined) {
      const reply = { headers: request.headers, response: http2Response };
      return this.#parts.grpc.forward(call, reply, { target, address, currentAddress }).then(
        () => visit.end(200),
        (error: unknown) =>
          this.#nextPod(error, { route, target }, response).then((next) =>
            this.#forward(request, exchange, next, visit),
          ),
      );
    }
    const routed = { request, response, target, protocol, address, currentAddress };
    forwardHttp(routed, this.#parts.forward, (error) => {
      if (error === undefined) return visit.end(response.statusCode);
      // It fell asleep or moved while we knocked: the request waits for it like any other.
      this.#nextPod(error, { route, target }, response)
        .then((next) => this.#forward(request, exchange, next, visit))
        .catch((refusal: unknown) => this.#refuse(request, response, refusal, visit));
    });
  }

  async #serveUpgrade(
    request: IncomingMessage,
    { socket, head, arrival, visit }: { socket: Duplex; head: Buffer; arrival: Arrival; visit: Visit },
  ): Promise<number> {
    const rawPath = request.url ?? "/";
    const link = takeLinkToken(rawPath);
    const asked = parseTarget(link?.path ?? rawPath, request.headers, this.#parts.addressing);
    const target = await this.#admit(request, asked, arrival.trust, link?.token);
    visit.admitted(target);
    visit.enter();
    this.#assertIncarnation(target);
    const found = this.#parts.waker.ready(target, () => goneSignal(socket));
    const route = found instanceof Promise ? await this.#held(found) : found;
    const { protocol, trust } = arrival;
    const expiresAtMs = this.#parts.gate.expiryMs(this.#credentialsOf(request, link?.token), trust);
    const endsInMs = expiresAtMs === undefined ? {} : { endsInMs: expiresAtMs - this.#parts.clock.nowMs() };
    return this.#forwardUpgrade({ request, socket, head, target, protocol, ...endsInMs }, route, visit);
  }

  async #forwardUpgrade(
    exchange: Omit<UpgradeExchange, "address" | "currentAddress">,
    route: ReadyRoute,
    visit: Visit,
  ): Promise<number> {
    visit.routed(route);
    const address = addressOf(route, exchange.target);
    const currentAddress = (): string => this.#currentAddress(exchange.target) ?? address;
    try {
      return await forwardUpgrade({ ...exchange, address, currentAddress }, this.#parts.upgrade);
    } catch (error) {
      const { target, socket } = exchange;
      return this.#forwardUpgrade(exchange, await this.#nextPod(error, { route, target }, socket), visit);
    }
  }

  /** The Pod that follows one that left while a request knocked at it; throws the error where none does. */
  async #nextPod(
    error: unknown,
    { route, target }: { readonly route: ReadyRoute; readonly target: Target },
    caller: ServerResponse | Duplex,
  ): Promise<ReadyRoute> {
    const isUnsent = error instanceof RoutingError && error.isUnsent;
    if (!isUnsent || caller.destroyed || !this.#hasLeft(route)) throw explainRefusal(error, route, target);
    const { namespace, name } = route;
    return this.#parts.waker.ready({ namespace, name, isRetry: true }, () => goneSignal(caller));
  }

  async #serveLinks(
    links: LinkService,
    request: IncomingMessage,
    response: ServerResponse,
    { trust }: Arrival,
  ): Promise<void> {
    await links.serve(request, response, async (target) => {
      const scope = await this.#parts.gate.admit(target, this.#credentialsOf(request, undefined), trust);
      // Who was lent one sandbox for a while may not lend it on for longer.
      if (scope !== undefined) throw new RoutingError(403, "a token for one sandbox makes no links");
    });
  }

  /** A sandbox under a name that another one had is not woken for who asks for that other one. */
  #assertIncarnation({ namespace, name, uid }: Target): void {
    if (uid === undefined) return;
    const route = this.#parts.table.get(namespace, name);
    if (route !== undefined && route.uid !== uid) throw new RoutingError(403, "forbidden");
  }

  /** Whether the sandbox is no longer as it was found. */
  #hasLeft({ namespace, name, uid }: ReadyRoute): boolean {
    const now = this.#parts.table.get(namespace, name);
    return now === undefined || now.uid !== uid || now.state.kind !== "ready";
  }

  #currentAddress(target: Target): string | undefined {
    const route = this.#parts.table.get(target.namespace, target.name);
    return route?.state.kind === "ready" ? addressOf({ ...route, state: route.state }, target) : undefined;
  }

  /** The target as the caller may reach it: a token can be for one incarnation of the name. */
  #admit(
    request: IncomingMessage,
    target: Target,
    trust: ListenerTrust,
    linkToken: string | undefined,
  ): Target | Promise<Target> {
    if (trust.kind === "insecure" || trust.kind === "loopback") assertNoForeignPage(request);
    const { gate, clock } = this.#parts;
    // Without a header it is the connection itself that proves who calls: its certificate, or the tunnel's opener.
    const { authorization = "", cookie } = request.headers;
    const memory = this.#doors.of(request.socket);
    const isPlain = linkToken === undefined && cookie === undefined;
    if (isPlain && memory.allows(authorization, target, clock.nowMs())) return target;
    const allowed = gate.admit(target, this.#credentialsOf(request, linkToken), trust);
    if (!(allowed instanceof Promise)) return allowed?.uid === undefined ? target : { ...target, uid: allowed.uid };
    return allowed.then(() => {
      if (isPlain) memory.remember(authorization, target, clock.nowMs());
      return target;
    });
  }

  #credentialsOf(request: IncomingMessage, linkToken: string | undefined): Credentials {
    const bearer = bearerOf(request);
    const cookie = linkToken ?? (bearer === undefined ? cookieToken(request.headers) : undefined);
    // A cookie travels with requests that other sites cause; a token in the link or header does not.
    if (cookie !== undefined && linkToken === undefined && isForeignOrigin(request.headers)) {
      throw new RoutingError(403, "origin not allowed for cookie-authenticated request");
    }
    const certificate = certificateUser(request);
    return {
      ...(request.method !== undefined && { method: request.method }),
      ...(certificate !== undefined && { certificateUser: certificate }),
      ...(bearer !== undefined && { bearer }),
      ...(cookie !== undefined && { linkToken: cookie }),
    };
  }

  async #held(found: Promise<ReadyRoute>): Promise<ReadyRoute> {
    try {
      const route = await found;
      this.#parts.metrics.held("ready");
      return route;
    } catch (error) {
      this.#parts.metrics.held("refused");
      throw error;
    }
  }

  /** Later requests are served so. */
  tune({ limits, accessLog, ...forward }: RouterTuning): void {
    this.#parts.counter.limits = limits;
    this.#parts.accessLog = accessLog;
    this.#parts.forward = { ...this.#parts.forward, ...forward };
  }

  /** From here on every answer ends its connection, and upgraded connections are ended, because most would never end by themselves. */
  drain(): void {
    this.#parts.forward.closing.isClosing = true;
    for (const endSession of this.#parts.upgrade.sessions) endSession("router is shutting down");
  }

  #refuse(request: IncomingMessage, response: ServerResponse, error: unknown, visit: Visit): void {
    const refusal = this.#asRefusal(error, visit);
    visit.end(refusal.status);
    if (response.headersSent || response.destroyed) return;
    const call = grpcStreamOf(request);
    if (call !== undefined) return refuseGrpc(call, refusal);
    if (refusal.retryAfterSeconds !== undefined) response.setHeader("Retry-After", String(refusal.retryAfterSeconds));
    if (refusal.isUnsent) response.setHeader(unsentHeader, "true");
    // Of a body that is not wanted only what is here already is read: the rest would hold the connection for as long as the caller likes.
    if (!request.complete && request.httpVersionMajor < 2) response.shouldKeepAlive = false;
    answerJson(response, refusal.status, { detail: refusal.message });
    if (!request.complete) request.resume();
  }

  #asRefusal(error: unknown, { namespace }: Visit): RoutingError {
    const { logger, metrics } = this.#parts;
    if (error instanceof RoutingError) {
      if (error.status === 401 || error.status === 403) metrics.denied(namespace);
      if (error.cause !== undefined) {
        metrics.upstreamError(namespace, error.cause);
        logger.debug({ err: error }, "upstream failure");
      }
      return error;
    }
    logger.error({ err: error }, "request failed");
    return new RoutingError(500, "An internal error occurred in the proxy.", { cause: error });
  }
}

/** A signal that aborts when the caller goes away; made only for callers who wait. */
function goneSignal(side: ServerResponse | Duplex): AbortSignal {
  const gone = new AbortController();
  const onClose = (): void => gone.abort(new RoutingError(499, "the caller went away"));
  if (side.destroyed) onClose();
  else side.once("close", onClose);
  return gone.signal;
}

/**
 * A listener that asks for no credential trusts every user of this machine, and a browser on it runs pages of strangers:
 * their requests carry an origin of their own, or the stranger's name as host.
 */
function assertNoForeignPage({ headers }: IncomingMessage): void {
  if (headers.authorization === undefined && (isForeignOrigin(headers) || !isForLoopback(headers)))
    throw new RoutingError(403, "origin not allowed for a request without credentials");
}

/** Whether a path could be the router's own. */
function isOwnPath(rawPath: string): boolean {
  return rawPath === "/healthz" || rawPath.startsWith("/_agent-sandbox/");
}

const sendablePath = /^[!-~\x80-\xff]+$/;
const sendableMethod = /^[A-Za-z-]+$/;

/** HTTP/2 carries method and path as free text; written into a line of HTTP/1.1 they must stay within it. */
function assertSendable(request: IncomingMessage, target: Target): void {
  if (!sendablePath.test(target.path) || !sendableMethod.test(request.method ?? ""))
    throw new RoutingError(400, "Invalid request target.");
}

/** The address to dial; a hint of the caller's must be one of the sandbox's own. */
function addressOf(route: ReadyRoute, target: Target): string {
  const { addresses } = route.state;
  if (target.uid !== undefined && target.uid !== route.uid) throw new RoutingError(403, "forbidden");
  // A stale hint is ignored, not refused: the sandbox may have moved since the client read its address.
  return target.podIp !== undefined && addresses.includes(target.podIp) ? target.podIp : (addresses[0] as string);
}

function redirectWithCookie(response: ServerResponse, target: Target, token: string, secure: boolean): void {
  response.setHeader("Set-Cookie", setLinkCookie(token, target, { secure, maxAgeSeconds: cookieMaxAgeSeconds }));
  redirect(response, target.form === "path" ? `${target.pathPrefix}${target.path}` : target.path);
}

/** Sends a visitor on, without a trace of the address he came by. */
function redirect(response: ServerResponse, location: string): void {
  response.writeHead(302, {
    Location: location,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Length": "0",
  });
  response.end();
}

function withToken(path: string, token: string): string {
  return `${path}${path.includes("?") ? "&" : "?"}${linkParameter}=${token}`;
}

/** The reference's words, without the newline of other answers. */
function answerHealth(response: ServerResponse): void {
  response.writeHead(200, { "Content-Type": "application/json", "Content-Length": "15" });
  response.end('{"status":"ok"}');
}

/** Answers with JSON and a newline, as the reference does. */
function answerJson(response: ServerResponse, status: number, body: object): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, { "Content-Type": "application/json", "Content-Length": String(Buffer.byteLength(text)) });
  response.end(text);
}

function refusalText(refusal: RoutingError): string {
  const body = `${JSON.stringify({ detail: refusal.message })}\n`;
  const retry = refusal.retryAfterSeconds === undefined ? "" : `Retry-After: ${refusal.retryAfterSeconds}\r\n`;
  return `HTTP/1.1 ${refusal.status} Refused\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${retry}Connection: close\r\n\r\n${body}`;
}
