import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { request as httpsRequest } from "node:https";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "node:tls";
import { leases, pods, sandboxes, secrets } from "@agent-sandbox/api";
import { type Client, createClient, httpTransport, systemClock } from "@agent-sandbox/kube";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiServer } from "../../packages/server/src/apiserver/api-server.ts";
import { issueCertificate, type KeyAndCertificate } from "../../packages/server/src/apiserver/auth/certificate.ts";
import type { Listener } from "../../packages/server/src/apiserver/http/http-listener.ts";
import { ownCrds } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { leaseName, runControllerProcess } from "../../packages/server/src/controllers/process/controller-process.ts";
import { controllerTransport } from "../../packages/server/src/controllers/process/controller-transport.ts";
import { parseControllerFlags } from "../../packages/server/src/controllers/process/flags.ts";
import { openStore } from "../../packages/server/src/store/sqlite-store.ts";
import { silentLogger } from "../../packages/server/src/telemetry/logger.ts";
import { createMetricsRegistry } from "../../packages/server/src/telemetry/metrics.ts";
import { everybody } from "./ground.ts";
import { namespace, sandbox } from "./objects.ts";

const day = 24 * 3_600_000;
const randomBytes = (count: number): Uint8Array => crypto.getRandomValues(new Uint8Array(count));
const life = { notBeforeMs: Date.now() - day, notAfterMs: Date.now() + day };
let authority: KeyAndCertificate;
let api: ApiServer;
let listener: Listener;
let client: Client;

beforeAll(async () => {
  const store = openStore({ path: ":memory:", clock: systemClock });
  api = new ApiServer({
    store,
    clock: systemClock,
    logger: silentLogger(),
    authorizer: { authorize: () => ({ verdict: "allow", reason: "test" }) },
    authenticator: { authenticate: () => Promise.resolve(everybody) },
  });
  await api.installCrds(ownCrds());
  authority = issueCertificate({ commonName: "ca", use: { kind: "authority" }, serial: randomBytes(16), ...life });
  const server = issueCertificate({
    commonName: "api",
    use: { kind: "server", names: ["127.0.0.1"] },
    serial: randomBytes(16),
    issuer: authority,
    ...life,
  });
  listener = await api.listen({
    host: "127.0.0.1",
    port: 0,
    tls: { certificate: server.certificatePem, key: server.privateKeyPem, clientCa: authority.certificatePem },
  });
  client = createClient(api.transportFor(everybody));
});
afterAll(async () => {
  await listener.close();
  await api.close();
});

interface Replica extends AsyncDisposable {
  readonly healthPort: number;
  readonly metricsPort: number;
  readonly webhookPort: number;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const bound = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof bound === "object" && bound !== null ? bound.port : 0;
}

/** Starts the role as its command line would, over TLS. */
async function start(identity: string, ...extra: string[]): Promise<Replica> {
  const [healthPort, metricsPort, webhookPort] = [await freePort(), await freePort(), await freePort()];
  const { values, errors } = parseControllerFlags([
    `--health-probe-bind-address=127.0.0.1:${healthPort}`,
    `--metrics-bind-address=127.0.0.1:${metricsPort}`,
    `--webhook-port=${webhookPort}`,
    "--extensions",
    ...extra,
  ]);
  expect(errors).toEqual([]);
  const stop = new AbortController();
  const credentials = { server: `https://127.0.0.1:${listener.port}`, ca: authority.certificatePem };
  const own = createClient(controllerTransport(values, () => httpTransport(credentials), systemClock));
  const running = runControllerProcess({
    client: own,
    clock: systemClock,
    logger: silentLogger(),
    registry: createMetricsRegistry(),
    flags: values,
    identity,
    namespace,
    issue: issueCertificate,
    randomBytes,
    build: { version: "test" },
    signal: stop.signal,
  });
  const ended = running.catch((error: unknown) => error);
  return {
    healthPort,
    metricsPort,
    webhookPort,
    async [Symbol.asyncDispose]() {
      stop.abort(new Error("stopped"));
      await ended;
      await own.transport.close();
    },
  };
}

async function eventually<T>(look: () => Promise<T | undefined>): Promise<T> {
  for (let tries = 0; tries < 400; tries++) {
    const found = await look().catch(() => undefined);
    if (found !== undefined) return found;
    await sleep(25);
  }
  throw new Error("it did not come about in ten seconds");
}

const text = async (port: number, route: string): Promise<{ status: number; body: string }> => {
  const response = await fetch(`http://127.0.0.1:${port}${route}`);
  return { status: response.status, body: await response.text() };
};
const holder = async (): Promise<string> =>
  (await client.get(leases, { namespace, name: leaseName })).spec?.holderIdentity ?? "";

function convert(port: number, ca: string): Promise<string> {
  const review = {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "ConversionReview",
    request: { uid: "u", desiredAPIVersion: "agents.x-k8s.io/v1alpha1", objects: [sandbox("x")] },
  };
  return new Promise((resolve, reject) => {
    const options = {
      host: "127.0.0.1",
      port,
      path: "/convert",
      method: "POST",
      ca,
      servername: "agent-sandbox-webhook-service",
    };
    const request = httpsRequest(options, (response) => {
      let body = "";
      response.on("data", (chunk: Buffer) => (body += chunk.toString()));
      response.on("end", () => resolve(body));
    });
    request.on("error", reject);
    request.end(JSON.stringify(review));
  });
}

/** The subject of the certificate that the webhook serves with at this moment. */
function servedName(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1", rejectUnauthorized: false }, () => {
      resolve(socket.getPeerX509Certificate()?.subject ?? "");
      socket.destroy();
    });
    socket.on("error", reject);
  });
}

describe("The controller role over TLS", () => {
  test("controller role: K3 leads by the reference's lease, serves probes, metrics and conversions, and works", {
    timeout: 30_000,
  }, async () => {
    await using replica = await start("first", "--api-connections=2", "--separate-watch-connection", "--enable-pprof");
    await eventually(async () => ((await holder()) === "first" ? true : undefined));
    await eventually(async () => ((await text(replica.healthPort, "/readyz")).status === 200 ? true : undefined));
    expect((await text(replica.healthPort, "/healthz")).body).toBe("ok");
    await client.create(sandboxes, sandbox("over-tls"));
    const pod = await eventually(() => client.get(pods, { namespace, name: "over-tls" }));
    expect(pod.metadata.ownerReferences?.[0]?.kind).toBe("Sandbox");
    const metrics = await eventually(async () => {
      const { body } = await text(replica.metricsPort, "/metrics");
      const isOver = body.includes('controller_runtime_active_workers{controller="sandbox"} 0');
      return isOver && body.includes('workqueue_work_duration_seconds_count{name="sandbox"') ? body : undefined;
    });
    expect(metrics).toContain(`leader_election_master_status{name="${leaseName}"} 1`);
    expect(metrics).toContain("agent_sandbox_build_info{");
    expect(metrics).toContain("agent_sandboxes{");
    expect(metrics).toMatch(/rest_client_requests_total\{code="201",method="POST",host="kubernetes"\} \d/);
    expect(metrics).toMatch(/workqueue_adds_total\{name="sandbox",controller="sandbox"\} \d/);
    expect((await text(replica.metricsPort, "/debug/pprof/profile?seconds=0.01")).status).toBe(200);
    expect((await text(replica.metricsPort, "/debug/pprof/heap")).status).toBe(404);
    const secret = await client.get(secrets, {
      namespace: "agent-sandbox-system",
      name: "agent-sandbox-webhook-certs",
    });
    const ca = Buffer.from(secret.data?.["ca.crt"] ?? "", "base64").toString();
    expect(await convert(replica.webhookPort, ca)).toContain('"replicas":1');
  });

  test("controller role: K5 an operator's certificate is served, and its successor without a restart", {
    timeout: 30_000,
  }, async () => {
    const directory = await mkdtemp(path.join(tmpdir(), "webhook-"));
    const lay = async (commonName: string): Promise<string> => {
      const names = ["agent-sandbox-webhook-service"];
      const issued = issueCertificate({
        commonName,
        use: { kind: "server", names },
        serial: randomBytes(16),
        issuer: authority,
        ...life,
      });
      await writeFile(path.join(directory, "tls.key"), issued.privateKeyPem);
      await writeFile(path.join(directory, "tls.crt"), issued.certificatePem);
      return commonName;
    };
    try {
      await lay("of-the-operator");
      await using replica = await start("own", "--manage-webhook-certs=false", `--webhook-cert-dir=${directory}`);
      await eventually(async () => ((await text(replica.healthPort, "/readyz")).status === 200 ? true : undefined));
      expect(await convert(replica.webhookPort, authority.certificatePem)).toContain('"replicas":1');
      expect(await servedName(replica.webhookPort)).toBe("CN=of-the-operator");
      await writeFile(path.join(directory, "tls.crt"), "no certificate");
      await eventually(async () =>
        /certwatcher_read_certificate_errors_total [1-9]/.test((await text(replica.metricsPort, "/metrics")).body)
          ? true
          : undefined,
      );
      expect(await servedName(replica.webhookPort)).toBe("CN=of-the-operator");
      await lay("renewed");
      await eventually(async () => ((await servedName(replica.webhookPort)) === "CN=renewed" ? true : undefined));
      expect(await convert(replica.webhookPort, authority.certificatePem)).toContain('"replicas":1');
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  test("controller role: K3 a leader that stops hands over at once, and the standby was ready all along", {
    timeout: 30_000,
  }, async () => {
    const first = await start("leader", "--enable-webhook=false");
    await eventually(async () => ((await holder()) === "leader" ? true : undefined));
    await using second = await start("standby", "--enable-webhook=false");
    await eventually(async () => ((await text(second.healthPort, "/readyz")).status === 200 ? true : undefined));
    expect((await text(second.metricsPort, "/metrics")).body).not.toContain(`{name="${leaseName}"} 1`);
    await first[Symbol.asyncDispose]();
    const stoppedMs = Date.now();
    await eventually(async () => ((await holder()) === "standby" ? true : undefined));
    expect(Date.now() - stoppedMs).toBeLessThan(10_000);
    await client.create(sandboxes, sandbox("after-hand-over"));
    await eventually(() => client.get(pods, { namespace, name: "after-hand-over" }));
  });
});
