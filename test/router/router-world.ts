import { generateKeyPairSync } from "node:crypto";
import { ignore, namespaces, type Sandbox, type ServiceAccount, sandboxes, serviceAccounts } from "@agent-sandbox/api";
import { type Client, createClient, systemClock } from "@agent-sandbox/kube";
import { ApiServer, type ApiServerOptions } from "../../packages/server/src/apiserver/api-server.ts";
import { bootstrapObjects } from "../../packages/server/src/apiserver/auth/bootstrap-objects.ts";
import { adminUser, componentUser } from "../../packages/server/src/apiserver/auth/components.ts";
import type { UserInfo } from "../../packages/server/src/apiserver/request/user-info.ts";
import { createSecurity } from "../../packages/server/src/apiserver/security.ts";
import { ownCrds } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { type OpenedRouter, openRouter } from "../../packages/server/src/router/open-router.ts";
import type { RouterOptions } from "../../packages/server/src/router/router-options.ts";
import { openStore } from "../../packages/server/src/store/sqlite-store.ts";
import { createLogger } from "../../packages/server/src/telemetry/logger.ts";
import { createMetricsRegistry, type MetricsRegistry } from "../../packages/server/src/telemetry/metrics.ts";

/** A sandbox as a test wants it; what is not said is a running one that anything can be sent to. */
export interface SandboxWish {
  readonly namespace?: string;
  readonly addresses?: readonly string[];
  readonly spec?: Partial<Sandbox["spec"]>;
  readonly labels?: Record<string, string>;
  readonly annotations?: Record<string, string>;
  /** Default `True` with reason `DependenciesReady`. */
  readonly ready?: { readonly status: "True" | "False"; readonly reason: string; readonly message?: string };
}

/** The real API server with its security in memory, and routers in front of sandboxes that are servers of the test. */
export class RouterWorld implements AsyncDisposable {
  readonly api: ApiServer;
  readonly admin: Client;
  readonly #closers: (() => Promise<unknown>)[] = [];
  #nextAddress = 1;

  private constructor(api: ApiServer) {
    this.api = api;
    this.admin = this.clientFor(adminUser);
  }

  static async open(options: Pick<ApiServerOptions, "nodeDialer"> = {}): Promise<RouterWorld> {
    const store = openStore({ path: ":memory:", clock: systemClock });
    const pair = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const privateKeyPem = pair.privateKey.export({ type: "pkcs8", format: "pem" }) as string;
    const security = createSecurity({
      clock: systemClock,
      random: Math.random,
      serviceAccountKey: { privateKeyPem, keyId: "test" },
    });
    const { authenticator, authorizer, admission, virtualResources, tokens: tokenIssuer } = security;
    const logger = createLogger({ component: "api", level: "silent" });
    const access = { authenticator, authorizer, admission, virtualResources, tokenIssuer };
    const api = new ApiServer({ store, clock: systemClock, logger, ...access, ...options });
    const following = await security.attach(api.parts);
    await api.installCrds(ownCrds());
    const world = new RouterWorld(api);
    for (const { resource, object } of bootstrapObjects())
      await world.admin.create(resource, object).catch(ignore("AlreadyExists"));
    world.#closers.push(async () => {
      following[Symbol.dispose]();
      await api.close();
      await store.close();
    });
    return world;
  }

  clientFor(user: UserInfo): Client {
    return createClient(this.api.transportFor(user));
  }

  /** A loopback address of its own, so that sandboxes may use the same ports. */
  address(): string {
    this.#nextAddress += 1;
    return `127.13.${this.#nextAddress >> 8}.${this.#nextAddress & 255}`;
  }

  /** Opens a router that is closed with the world. */
  async router(options: Partial<RouterOptions> = {}): Promise<OpenedRouter & { readonly metrics: MetricsRegistry }> {
    const metrics = createMetricsRegistry();
    const router = openRouter({
      client: this.clientFor(componentUser("sandbox-router")),
      clock: systemClock,
      logger: createLogger({ component: "router", level: process.env["WORLD_LOG"] ?? "silent" }),
      metrics,
      addressing: { hostDomain: "sandbox.localhost", pathPrefix: "/sandboxes", allowLoopbackPodIp: true },
      access: { mode: "allow-all" },
      limits: { perClientMax: 0, perSandboxMax: 0 },
      connectTimeoutMs: 500,
      firstByteTimeoutMs: 5_000,
      callerTimeoutMaxMs: 60_000,
      retry: { retriesMax: 2, initialDelayMs: 20, maxDelayMs: 40 },
      holdLimitMs: 3_000,
      heldMax: 100,
      upgradeIdleTimeoutMs: 0,
      upgradeLifetimeMs: 0,
      bodyBytesMax: 0,
      accessLog: false,
      ...options,
    });
    this.#closers.push(() => router.close(0));
    await router.table.synced(AbortSignal.timeout(10_000));
    return Object.assign(router, { metrics });
  }

  async namespace(name: string): Promise<void> {
    const object = { apiVersion: "v1", kind: "Namespace", metadata: { name } };
    await this.admin.create(namespaces, object).catch(ignore("AlreadyExists"));
  }

  /** Makes a sandbox and its status, as controller and node would, and waits until a router knows it. */
  async sandbox(router: OpenedRouter, name: string, wish: SandboxWish = {}): Promise<string> {
    const { namespace = "default", addresses = [this.address()], spec = {}, labels, annotations } = wish;
    await this.namespace(namespace);
    await this.admin.create(sandboxes, {
      apiVersion: "agents.x-k8s.io/v1beta1",
      kind: "Sandbox",
      metadata: { name, namespace, ...(labels && { labels }), ...(annotations && { annotations }) },
      spec: { podTemplate: { spec: { containers: [{ name: "main", image: "example.com/app:1" }] } }, ...spec },
    });
    const { status, reason, message = reason } = wish.ready ?? { status: "True", reason: "DependenciesReady" };
    await this.setStatus(name, { namespace, addresses, status, reason, message });
    await until(() => router.table.get(namespace, name) !== undefined || labels !== undefined);
    if (status === "True")
      await until(() => router.table.get(namespace, name)?.state.kind === "ready" || labels !== undefined);
    return addresses[0] ?? "";
  }

  /** Writes the status that a controller would write. */
  async setStatus(
    name: string,
    wish: { namespace?: string; addresses?: readonly string[]; status: string; reason: string; message?: string },
  ): Promise<void> {
    const { namespace = "default", addresses = [], status, reason, message = "" } = wish;
    const condition = { type: "Ready", status, reason, message, lastTransitionTime: "2026-01-01T00:00:00Z" };
    await this.admin.patch(
      sandboxes,
      { namespace, name },
      { type: "merge", body: { status: { podIPs: addresses, conditions: [condition] } } },
      { subresource: "status" },
    );
  }

  /** A token of a ServiceAccount, which is made on first use. */
  async token(namespace: string, name: string): Promise<string> {
    await this.namespace(namespace);
    const account: ServiceAccount = { apiVersion: "v1", kind: "ServiceAccount", metadata: { namespace, name } };
    await this.admin.create(serviceAccounts, account).catch(ignore("AlreadyExists"));
    const answer = await this.admin.raw<{ status: { token: string } }>({
      method: "POST",
      path: `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`,
      body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} },
    });
    return answer.status.token;
  }

  /** Lets a user connect to the sandboxes of a namespace; resolves when the authoriser knows. */
  async grantConnect(
    namespace: string,
    subject: { kind: "User" | "ServiceAccount"; name: string; namespace?: string },
  ): Promise<void> {
    await this.namespace(namespace);
    const api = "rbac.authorization.k8s.io";
    const name = `connect-${subject.name}`;
    const base = `/apis/${api}/v1/namespaces/${namespace}`;
    const rules = [{ apiGroups: ["agents.x-k8s.io"], resources: ["sandboxes/connect"], verbs: ["create"] }];
    const role = { apiVersion: `${api}/v1`, kind: "Role", metadata: { name }, rules };
    await this.admin.raw({ method: "POST", path: `${base}/roles`, body: role });
    const roleRef = { apiGroup: api, kind: "Role", name };
    const subjects = [subject.kind === "User" ? { ...subject, apiGroup: api } : subject];
    const binding = { apiVersion: `${api}/v1`, kind: "RoleBinding", metadata: { name }, roleRef, subjects };
    await this.admin.raw({ method: "POST", path: `${base}/rolebindings`, body: binding });
    const username =
      subject.kind === "User" ? subject.name : `system:serviceaccount:${subject.namespace}:${subject.name}`;
    const attributes = {
      group: "agents.x-k8s.io",
      resource: "sandboxes",
      subresource: "connect",
      verb: "create",
      namespace,
    };
    await until(async () => {
      const body = {
        apiVersion: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        spec: { user: username, resourceAttributes: attributes },
      };
      const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
      return (await this.admin.raw<{ status: { allowed: boolean } }>({ method: "POST", path, body })).status.allowed;
    });
  }

  /** Closes something with the world, before what was opened earlier. */
  onClose(close: () => Promise<unknown>): void {
    this.#closers.push(close);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const close of this.#closers.reverse()) await close();
  }
}

/** Resolves once the answer is yes; looks again every few milliseconds. */
export async function until(look: () => boolean | Promise<boolean>, patienceMs = 10_000): Promise<void> {
  const endMs = performance.now() + patienceMs;
  while (!(await look())) {
    if (performance.now() > endMs) throw new Error(`not within ${patienceMs} ms: ${look.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
}
