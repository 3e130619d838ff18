import { chmod, rm } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import type net from "node:net";
import type { ListenerTrust } from "./access/caller.ts";
import { Gate } from "./access/gate.ts";
import { ApiReviewer } from "./access/reviewer.ts";
import { linkCookie } from "./access/signed-link.ts";
import { ExchangeCounter } from "./limits.ts";
import { LinkService } from "./link-service.ts";
import { containersEnded, Dialer, FellAsleepError, suspendedUnder } from "./proxy/dial.ts";
import { GrpcForwarder } from "./proxy/forward-grpc.ts";
import { Outbox } from "./proxy/outbox.ts";
import { RetryPolicy } from "./proxy/retry.ts";
import { UpstreamPool } from "./proxy/upstream-pool.ts";
import { Router } from "./router.ts";
import { RouterMetrics } from "./router-metrics.ts";
import type { RouterOptions, RouterTuning } from "./router-options.ts";
import type { RoutingError } from "./routing-error.ts";
import { ActivityReporter } from "./sandboxes/activity.ts";
import { ArchiveTable } from "./sandboxes/archive-table.ts";
import type { SandboxRoute } from "./sandboxes/sandbox-route.ts";
import { SandboxTable } from "./sandboxes/sandbox-table.ts";
import { Waker, type WakerOptions } from "./sandboxes/waker.ts";
import { createSniffingServer, type ServerTls, type SniffingServer } from "./sniffing-server.ts";
import { TlsFiles } from "./tls-files.ts";
import { createTunnelDoor } from "./tunnel-door.ts";

/** Where a listener listens. */
export type ListenOn = { readonly host: string; readonly port: number } | { readonly socket: string };

/** How a listener behaves. */
export interface ListenOptions {
  readonly tlsOnly?: boolean;
  /** Callers on loopback without any credential are taken for tunnels; see GateOptions.tunnelNamespaces. */
  readonly tunnels?: boolean;
}

/** A router that can listen on several addresses with different trust. */
export interface OpenedRouter {
  /**
   * Listens and resolves with the port (0 for a socket). With `tls` the port speaks TLS, and clear text as well unless
   * `tlsOnly` is set; certificates that come from files follow them.
   */
  listen(on: ListenOn, trust: ListenerTrust, tls?: ServerTls | TlsFiles, options?: ListenOptions): Promise<number>;
  /** Listens for tunnels: each connection begins with the identity of who opened it; see tunnel-preamble.ts. */
  listenForTunnels(socket: string): Promise<void>;
  readonly table: SandboxTable;
  readonly metrics: RouterMetrics;
  /** Changes what can be changed while requests are under way; those keep what they began with. */
  tune(tuning: RouterTuning): void;
  /** Stops accepting, lets exchanges end within the limit, then cuts them. */
  close(drainMs: number): Promise<void>;
}

/** A link lives at most this long; a longer need is a token's. */
const linkTtlSecondsMax = 7 * 24 * 3600;
const leftMsDefault = 30_000;
/** Open exchanges are looked at this often: a quarter of the shortest timeout is 250 ms. */
const refreshEveryMs = 200;

/** Assembles a router and starts its watch; it answers once the first list is in. */
export function openRouter(options: RouterOptions): OpenedRouter {
  const { client, clock, logger } = options;
  const ending = new AbortController();
  const onError = (error: unknown): void => logger.warn({ err: error }, "cannot reach the API");
  const table = new SandboxTable({
    client,
    clock,
    onError,
    onAddressLeft: (address, isGone) => {
      pool.forget(address);
      grpc.forget(address);
      if (isGone) dialer.abandon(address);
    },
    onContainersEnded: (address) => cutOff([address], upstreams(), containersEnded),
    onMemorySaved: (address) => cutOff([address], upstreams(), () => new FellAsleepError()),
    onFrozen: (route) => onFrozen(route, activity, upstreams()),
    ...(options.namespace !== undefined && { namespace: options.namespace }),
  });
  const upstreams = (): Upstreams => ({ pool, grpc, dialer });
  const activity = new ActivityReporter({ client, clock, table, onError });
  const archives = openArchives(options);
  const { router, grpc, pool, dialer, metrics } = assemble(options, { table, archives, activity });
  const watching = watched([table, archives], logger, ending.signal);
  const refreshing = setInterval(() => activity.refreshOpen(), refreshEveryMs);
  const servers: SniffingServer[] = [];
  const doors: net.Server[] = [];

  const serverFor: ServerMaker = (trust, tls, on) => {
    const server = createServerFor(router, trust, tls, on);
    servers.push(server);
    return server;
  };
  return {
    table,
    metrics,
    tune: (tuning) => router.tune(tuning),
    listen: async (on, trust, tls, listenOptions = {}) => {
      const sniffing = serverFor(trust, tls instanceof TlsFiles ? tls.current : tls, listenOptions);
      const { server } = sniffing;
      if (tls instanceof TlsFiles) tls.onChange((next) => sniffing.setTls(next));
      await listening(server, on);
      const address = server.address();
      return typeof address === "object" && address !== null ? address.port : 0;
    },
    listenForTunnels: async (socket) => {
      const { server } = serverFor({ kind: "credentials" });
      const door = createTunnelDoor((connection, user) => {
        Object.assign(connection, { [trustOfConnection]: { kind: "tunnel", user } satisfies ListenerTrust });
        server.emit("connection", connection);
      });
      // A killed router leaves its socket behind, and only routers listen below this directory.
      await rm(socket, { force: true });
      await listening(door, { socket });
      // The directory says whose group it is.
      await chmod(socket, 0o660);
      doors.push(door);
    },
    close: async (drainMs) => {
      clearInterval(refreshing);
      router.drain();
      for (const door of doors) door.close();
      await drain(servers, drainMs);
      ending.abort(new Error("the router is closed"));
      await grpc.close();
      pool.close();
      await watching;
    },
  };
}

type ServerMaker = (trust: ListenerTrust, tls?: ServerTls, on?: ListenOptions) => SniffingServer;

/** A server whose requests go to the router with the trust of the listener, unless their connection brings its own. */
function createServerFor(
  router: Router,
  trust: ListenerTrust,
  tls: ServerTls | undefined,
  on: ListenOptions = {},
): SniffingServer {
  const trustOf = (request: IncomingMessage): ListenerTrust =>
    tunnelTrust(request) ?? (on.tunnels === true && isBareLoopback(request) ? { kind: "loopback" } : trust);
  return createSniffingServer(
    {
      onRequest: (request, response, protocol) =>
        router.onRequest(request, response, { trust: trustOf(request), protocol }),
      onUpgrade: (request, socket, head, protocol) =>
        router.onUpgrade(request, socket, head, { trust: trustOf(request), protocol }),
    },
    { tlsOnly: on.tlsOnly === true, ...(tls !== undefined && { tls }) },
  );
}

/** What holds connections to sandboxes. */
interface Upstreams {
  readonly pool: UpstreamPool;
  readonly grpc: GrpcForwarder;
  readonly dialer: Dialer;
}

/** What is open to a sandbox that has frozen wakes it, or ends where no traffic wakes it. */
function onFrozen(route: SandboxRoute, activity: ActivityReporter, upstreams: Upstreams): void {
  if (route.state.kind === "held") cutOff(route.podAddresses, upstreams, () => suspendedUnder(route));
  else activity.onFrozen(route);
}

/** Ends what is open to containers that have ended, whose memory was saved, or that stand still for longer than any caller waits: such a sandbox closes nothing itself. */
function cutOff(addresses: readonly string[], { pool, grpc, dialer }: Upstreams, why: () => RoutingError): void {
  for (const address of addresses) {
    pool.forget(address);
    grpc.forget(address);
    dialer.cut(address, why);
  }
}

function assemble(
  options: RouterOptions,
  { table, archives, activity }: Pick<WakerOptions, "activity" | "archives" | "table">,
): { router: Router; grpc: GrpcForwarder; pool: UpstreamPool; dialer: Dialer; metrics: RouterMetrics } {
  const { clock, logger, addressing } = options;
  const { connectTimeoutMs, leftMs = leftMsDefault } = options;
  const dialer = new Dialer({ clock, connectTimeoutMs, leftMs });
  const outbox = new Outbox();
  const pool = new UpstreamPool(dialer, outbox, clock);
  const waker = new Waker({
    table,
    archives,
    activity,
    clock,
    holdLimitMs: options.holdLimitMs,
    heldMax: options.heldMax,
  });
  const metrics = new RouterMetrics(options.metrics, () => waker.held);
  const retry = new RetryPolicy({ ...options.retry, onRetry: (namespace) => metrics.retried(namespace) });
  const grpc = new GrpcForwarder(dialer, retry);
  const linkSecrets = linkSecretsOf(options);
  const gate = createGate(options, table, linkSecrets);
  const links = createLinks(options, table, linkSecrets);
  const router = new Router({
    addressing,
    gate,
    waker,
    activity,
    counter: new ExchangeCounter(options.limits),
    metrics,
    table,
    grpc,
    forward: {
      pool,
      outbox,
      retry,
      ownCookie: linkCookie,
      firstByteTimeoutMs: options.firstByteTimeoutMs,
      callerTimeoutMaxMs: options.callerTimeoutMaxMs,
      bodyBytesMax: options.bodyBytesMax,
      closing: { isClosing: false },
    },
    upgrade: {
      dialer,
      retry,
      ownCookie: linkCookie,
      handshakeTimeoutMs: options.firstByteTimeoutMs,
      idleTimeoutMs: options.upgradeIdleTimeoutMs,
      lifetimeMs: options.upgradeLifetimeMs,
      sessions: new Set(),
    },
    clock,
    logger,
    accessLog: options.accessLog,
    tracing: options.tracing ?? false,
    ...(links !== undefined && { links }),
  });
  return { router, grpc, pool, dialer, metrics };
}

/** The secrets of links at any moment: the first signs. */
function linkSecretsOf({ linkSecret }: RouterOptions): () => readonly Uint8Array[] {
  if (typeof linkSecret === "function") return linkSecret;
  return () => (linkSecret === undefined ? [] : [linkSecret]);
}

/** Resolves when the last watch has ended. */
async function watched(
  tables: readonly Pick<SandboxTable, "run">[],
  logger: RouterOptions["logger"],
  signal: AbortSignal,
): Promise<void> {
  await Promise.all(tables.map((table) => table.run(signal))).catch((error: unknown) => {
    if (!signal.aborted) logger.error({ err: error }, "the watch of sandboxes ended");
  });
}

/** A cluster that does not serve the kind has no archived sandbox, and no operator wants to read of it. */
function openArchives({ client, clock, logger, namespace }: RouterOptions): ArchiveTable {
  const onError = (error: unknown): void => logger.debug({ err: error }, "the watch of archives was interrupted");
  return new ArchiveTable({ client, clock, onError, ...(namespace !== undefined && { namespace }) });
}

/** Keys may change while the router runs, so the gate reads them each time. */
function createGate(
  { client, clock, access, review }: RouterOptions,
  table: SandboxTable,
  linkSecrets: () => readonly Uint8Array[],
): Gate {
  const uidOf = (namespace: string, name: string): string | undefined => table.get(namespace, name)?.uid;
  const scopedTokenKeys = {
    get secrets() {
      return [...(access.scopedTokenKeys?.secrets ?? []), ...linkSecrets()];
    },
    get publicKeys() {
      return access.scopedTokenKeys?.publicKeys ?? new Map();
    },
  };
  const reviewer = new ApiReviewer({ client, clock, ...review });
  return new Gate({ ...access, scopedTokenKeys, uidOf, clock, reviewer });
}

/** Links need a secret, and the path form, which works without name resolution. */
function createLinks(
  { linkSecret, clock, addressing: { pathPrefix, hostDomain } }: RouterOptions,
  table: SandboxTable,
  linkSecrets: () => readonly Uint8Array[],
): LinkService | undefined {
  if (linkSecret === undefined || pathPrefix === undefined) return undefined;
  return new LinkService({
    secret: () => linkSecrets()[0] as Uint8Array,
    table,
    clock,
    pathPrefix,
    ttlSecondsMax: linkTtlSecondsMax,
    ...(hostDomain !== undefined && { hostDomain }),
  });
}

/** Whether a request comes from this machine or Pod and brings nothing to prove who sent it. */
function isBareLoopback({ socket, headers }: IncomingMessage): boolean {
  const { authorization, cookie } = headers;
  return authorization === undefined && cookie === undefined && isLoopback(socket.remoteAddress ?? "");
}

function isLoopback(address: string): boolean {
  return address === "::1" || address.startsWith("127.") || address.startsWith("::ffff:127.");
}

/** Where a tunnel's connection carries its trust; reading it also works through the proxy object that HTTP/2 puts around a socket. */
const trustOfConnection = Symbol("trust of this connection");

function tunnelTrust(request: IncomingMessage): ListenerTrust | undefined {
  return (request.socket as { [trustOfConnection]?: ListenerTrust })[trustOfConnection];
}

function listening(server: net.Server, on: ListenOn): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    const done = (): void => {
      server.removeListener("error", reject);
      resolve();
    };
    if ("socket" in on) server.listen(on.socket, done);
    else server.listen(on.port, on.host, done);
  });
}

async function drain(servers: readonly SniffingServer[], drainMs: number): Promise<void> {
  const closed = Promise.all(servers.map(({ server }) => new Promise((resolve) => server.once("close", resolve))));
  for (const server of servers) server.drain();
  const timer = Promise.withResolvers<void>();
  const timeout = setTimeout(timer.resolve, drainMs);
  await Promise.race([closed, timer.promise]);
  clearTimeout(timeout);
  for (const server of servers) server.destroy();
}
