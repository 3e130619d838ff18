import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  type CustomResourceDefinition,
  customResourceDefinitions,
  ignore,
  type KubeObject,
  type Node,
  nodes,
} from "@agent-sandbox/api";
import {
  type Client,
  createClient,
  type KubeRequest,
  type KubeResponse,
  systemClock,
  type Transport,
} from "@agent-sandbox/kube";
import { parse } from "yaml";
import { quotaUsed } from "../../packages/server/src/apiserver/admission/quota-usage.ts";
import { ApiServer } from "../../packages/server/src/apiserver/api-server.ts";
import { bootstrapObjects } from "../../packages/server/src/apiserver/auth/bootstrap-objects.ts";
import { adminUser, componentUser } from "../../packages/server/src/apiserver/auth/components.ts";
import { isWholeBody } from "../../packages/server/src/apiserver/request/api-request.ts";
import type { UserInfo } from "../../packages/server/src/apiserver/request/user-info.ts";
import { createSecurity } from "../../packages/server/src/apiserver/security.ts";
import { standins } from "../../packages/server/src/standins/standins.ts";
import { openStore } from "../../packages/server/src/store/sqlite-store.ts";
import { createLogger } from "../../packages/server/src/telemetry/logger.ts";
import { createMetricsRegistry } from "../../packages/server/src/telemetry/metrics.ts";

/** A whole control plane without controllers and nodes: API, store in memory, security and stand-ins, in one process. */
export interface World extends AsyncDisposable {
  readonly admin: Client;
  clientFor(user: UserInfo): Client;
  /** Resolves with the first truthy answer; looks again after each change of state, at the latest every few milliseconds. */
  eventually<T>(look: () => Promise<T | undefined | false>): Promise<T>;
}

/** Starts the world; dispose it to stop everything. */
export async function openWorld(): Promise<World> {
  const logger = createLogger({ component: "world", level: process.env["WORLD_LOG"] ?? "silent" });
  const store = openStore({ path: ":memory:", clock: systemClock });
  const privateKeyPem = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({
    type: "pkcs8",
    format: "pem",
  }) as string;
  const security = createSecurity({
    clock: systemClock,
    random: Math.random,
    serviceAccountKey: { privateKeyPem, keyId: "test" },
    addresses: "10.200.0.0/16",
  });
  const { authorizer, admission, virtualResources, tokens: tokenIssuer } = security;
  const api = new ApiServer({
    store,
    clock: systemClock,
    logger,
    authorizer,
    admission,
    virtualResources,
    tokenIssuer,
  });
  const following = await security.attach(api.parts);
  const clientFor = (user: UserInfo) => createClient(transportFor(api, user));
  const admin = clientFor(adminUser);
  for (const { resource, object } of bootstrapObjects())
    await admin.create(resource, object).catch(ignore("AlreadyExists"));
  for (const definition of ownDefinitions()) await admin.create(customResourceDefinitions, definition);
  const stop = new AbortController();
  const running = standins({
    client: clientFor(componentUser("agent-sandbox-standins")),
    clock: systemClock,
    logger,
    metrics: createMetricsRegistry(),
    caBundlePem: "-----BEGIN CERTIFICATE-----",
    router: { systemNamespace: "agent-sandbox-system", address: "10.200.0.2" },
    quotaUsed,
  }).run(stop.signal);
  return {
    admin,
    clientFor,
    eventually,
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await running;
      following[Symbol.dispose]();
      await api.close();
      await store.close();
    },
  };
}

function transportFor(api: ApiServer, user: UserInfo): Transport {
  return {
    request: async (request: KubeRequest): Promise<KubeResponse> => {
      const { status, headers, body } = await api.handle({ ...request, user });
      return { status, headers, body: isWholeBody(body) ? chunks(body) : body };
    },
    upgrade: () => Promise.reject(new Error("this world has no streams")),
    close: () => Promise.resolve(),
  };
}

async function* chunks(parts: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* parts;
}

function ownDefinitions(): CustomResourceDefinition[] {
  const text = readFileSync(new URL("../../spec/builtin/crds.json", import.meta.url), "utf8");
  return parse(text) as CustomResourceDefinition[];
}

/** Longer than any chain of stand-ins takes, shorter than a test's time limit. */
const patienceMs = 15_000;

async function eventually<T>(look: () => Promise<T | undefined | false>): Promise<T> {
  const endMs = performance.now() + patienceMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > endMs) throw new Error(`not within ${patienceMs} ms: ${look.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
}

/** A Ready node with that much memory. */
export function readyNode(name: string, memory = "1Gi"): Node {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name },
    status: { allocatable: { cpu: "4", memory, pods: "110" }, conditions: [{ type: "Ready", status: "True" }] },
  };
}

/** Registers a node with its status, as a node agent does. */
export async function addNode(client: Client, node: Node): Promise<void> {
  await client.create(nodes, node);
  await client.patch(
    nodes,
    { name: node.metadata.name },
    { type: "merge", body: { status: node.status } },
    { subresource: "status" },
  );
}

/** Whether an object is gone. */
export async function isGone(get: Promise<KubeObject>): Promise<boolean> {
  return (await get.catch(ignore("NotFound"))) === undefined;
}
