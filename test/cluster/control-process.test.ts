import { spawnSync } from "node:child_process";
import { randomBytes, X509Certificate } from "node:crypto";
import {
  customResourceDefinitions,
  ignore,
  leases,
  pods,
  type Resource,
  type SandboxClaimV1alpha1,
  type SandboxV1alpha1,
  type Secret,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
  secrets,
  services,
} from "@agent-sandbox/api";
import { type Client, createClient, httpTransport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { issueCertificate } from "../../packages/server/src/apiserver/auth/certificate.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { aClaim, aPool, aTemplate } from "./claim-objects.ts";
import { type Cluster, freePorts, openCluster } from "./cluster.ts";
import { type Replica, startReplica } from "./control-replica.ts";
import { aSandbox, conditionOf } from "./control-scenarios.ts";
import { fakeKubelet } from "./fake-kubelet.ts";
import { programPath } from "./programs.ts";
import { Ground } from "./scenario-ground.ts";

const { objectType: _sandbox, ...sandboxResource } = sandboxes;
const { objectType: _claim, ...claimResource } = sandboxClaims;
const sandboxesV1alpha1: Resource<SandboxV1alpha1> = { ...sandboxResource, version: "v1alpha1" };
const sandboxClaimsV1alpha1: Resource<SandboxClaimV1alpha1> = { ...claimResource, version: "v1alpha1" };

const system = "agent-sandbox-system";
const secretKey = { namespace: system, name: "agent-sandbox-webhook-certs" };
const service = "agent-sandbox-webhook-service";
const crdNames = [
  "sandboxes.agents.x-k8s.io",
  "sandboxclaims.extensions.agents.x-k8s.io",
  "sandboxtemplates.extensions.agents.x-k8s.io",
  "sandboxwarmpools.extensions.agents.x-k8s.io",
];
let cluster: Cluster;
let admin: Client;
let first: Replica;
let webhookPort = 0;
/** The certificate that the first replica came up with. */
let loaded = "";
const stop = new AbortController();
const ending: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  cluster = await openCluster();
  ending.unshift(async () => cluster[Symbol.asyncDispose]());
  const transport = httpTransport(cluster.admin);
  admin = createClient(transport);
  ending.unshift(() => transport.close());
  const manifests = ["--kubeconfig", cluster.kubeconfig, "apply", "--server-side", "-k", "deploy/kubernetes"];
  const applied = spawnSync(programPath("kubectl"), manifests, { cwd: rootDir, encoding: "utf8", timeout: 60_000 });
  expect(applied).toMatchObject({ status: 0 });
  [webhookPort = 0] = await freePorts(1);
  await pointServiceHere(webhookPort);
  const kubelet = fakeKubelet(admin, "fake-node").run(stop.signal);
  ending.unshift(() => kubelet.catch(() => undefined));
  first = await startBeforeRenewal();
  ending.unshift(async () => first[Symbol.asyncDispose]());
}, 300_000);

afterAll(async () => {
  stop.abort(new Error("the test is over"));
  for (const end of ending) await end();
}, 60_000);

/** There are no Pods of ours behind the Service here: a name that resolves to this machine stands in for them. */
async function pointServiceHere(port: number): Promise<void> {
  await admin.delete(services, { namespace: system, name: service });
  await admin.create(services, {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: system, name: service },
    spec: { type: "ExternalName", externalName: "localhost", ports: [{ port }] },
  });
  const body = { spec: { conversion: { webhook: { clientConfig: { service: { port } } } } } };
  for (const name of crdNames) await admin.patch(customResourceDefinitions, { name }, { type: "merge", body });
}

/** Starts a replica on a certificate that ends soon, but not before the replica is up, however slow the machine is. */
async function startBeforeRenewal(): Promise<Replica> {
  for (let dueInMs = 12_000; ; dueInMs *= 3) {
    await admin.delete(secrets, secretKey).catch(ignore("NotFound"));
    const secret = await admin.create(secrets, referenceSecret(dueInMs));
    const replica = await startReplica(cluster, "first", webhookPort);
    loaded = certificateOf(secret);
    if (certificateOf(await admin.get(secrets, secretKey)) === loaded) return replica;
    await replica[Symbol.asyncDispose]();
  }
}

/** What the reference leaves behind: no key of the authority, and a certificate that is due for renewal soon. */
function referenceSecret(dueInMs: number): Secret {
  const nowMs = Date.now();
  // Renewal comes at two thirds of the life.
  const life = { notBeforeMs: nowMs - 2 * 3_600_000, notAfterMs: nowMs + 3_600_000 + 1.5 * dueInMs };
  const serial = (): Uint8Array => randomBytes(16);
  const commonName = "agent-sandbox-conversion-webhook-ca";
  const authority = issueCertificate({ commonName, use: { kind: "authority" }, serial: serial(), ...life });
  const base = `${service}.${system}`;
  const names = [service, base, `${base}.svc`, `${base}.svc.cluster.local`];
  const leaf = issueCertificate({
    commonName: `${base}.svc`,
    use: { kind: "server", names },
    serial: serial(),
    issuer: authority,
    ...life,
  });
  const encode = (text: string): string => Buffer.from(text).toString("base64");
  return {
    apiVersion: "v1",
    kind: "Secret",
    metadata: secretKey,
    type: "Opaque",
    data: {
      "ca.crt": encode(authority.certificatePem),
      "tls.crt": encode(leaf.certificatePem),
      "tls.key": encode(leaf.privateKeyPem),
    },
  };
}

const certificateOf = (secret: Secret): string => Buffer.from(secret.data?.["tls.crt"] ?? "", "base64").toString();

async function eventually<T>(what: string, look: () => Promise<T | undefined>, withinMs = 90_000): Promise<T> {
  const endMs = performance.now() + withinMs;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (performance.now() > endMs) throw new Error(`not within ${withinMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test("conversion on a cluster: a certificate that ends is renewed without a restart and without a failed request", {
  timeout: 180_000,
}, async () => {
  await using ground = await Ground.open(admin);
  await ground.create(sandboxes, aSandbox("box"));
  expect(new X509Certificate(loaded).subject).toContain(service);
  let reads = 0;
  const renewed = await eventually("the certificate is renewed", async () => {
    await ground.get(sandboxesV1alpha1, "box");
    reads += 1;
    const secret = await admin.get(secrets, secretKey);
    return certificateOf(secret) === loaded ? undefined : secret;
  });
  expect(reads).toBeGreaterThan(0);
  // Both authorities are trusted, so that replicas may change over one after the other.
  const bundle = Buffer.from(renewed.data?.["ca.crt"] ?? "", "base64").toString();
  expect(bundle.match(/BEGIN CERTIFICATE/g)).toHaveLength(2);
  for (const name of crdNames) {
    await eventually(`${name} trusts the renewed certificate`, async () => {
      await ground.get(sandboxesV1alpha1, "box");
      const { conversion } = (await admin.get(customResourceDefinitions, { name })).spec;
      return conversion?.webhook?.clientConfig?.caBundle === renewed.data?.["ca.crt"] ? true : undefined;
    });
  }
  await ground.get(sandboxesV1alpha1, "box");
  expect(first.daemon.exitCode()).toBeUndefined();
});

test("conversion on a cluster: every definition trusts the managed certificate", async () => {
  const { data } = await admin.get(secrets, secretKey);
  for (const name of crdNames) {
    const { conversion } = (await admin.get(customResourceDefinitions, { name })).spec;
    expect(conversion).toMatchObject({
      strategy: "Webhook",
      webhook: {
        conversionReviewVersions: ["v1", "v1beta1"],
        clientConfig: { caBundle: data?.["ca.crt"], service: { name: service, namespace: system, path: "/convert" } },
      },
    });
  }
});

test("conversion on a cluster: v1alpha1 is written, read, scaled and listed beside v1beta1", async () => {
  await using ground = await Ground.open(admin);
  const { namespace } = ground;
  const key = { namespace, name: "old" };
  const podTemplate = { spec: { containers: [{ name: "main", image: "example.com/app:1" }] } };
  await ground.create(sandboxesV1alpha1, {
    apiVersion: "agents.x-k8s.io/v1alpha1",
    kind: "Sandbox",
    metadata: { name: "old" },
    spec: { podTemplate, replicas: 0 },
  });
  expect((await admin.get(sandboxes, key)).spec.operatingMode).toBe("Suspended");
  await ground.until(sandboxes, "old", (box) => conditionOf(box, "Suspended")?.status === "True");

  const scale = { spec: { replicas: 1 } };
  await admin.patch(sandboxesV1alpha1, key, { type: "merge", body: scale }, { subresource: "scale" });
  const awake = await ground.until(sandboxes, "old", (box) => conditionOf(box, "Ready")?.status === "True");
  expect(awake.spec.operatingMode).toBe("Running");
  expect(awake.status?.nodeName).toBe("fake-node");
  const seen = await admin.get(sandboxesV1alpha1, key);
  expect(seen).toMatchObject({ spec: { replicas: 1 }, status: { replicas: 1, podIPs: awake.status?.podIPs } });
  expect(seen.spec).not.toHaveProperty("operatingMode");

  // A write through the old version loses nothing that only the new one has.
  const { uid } = (await admin.get(pods, key)).metadata;
  await ground.patch(sandboxes, "old", { spec: { autoSuspension: { inactivityTimeoutSeconds: 600 } } });
  const labelled = { metadata: { labels: { seen: "true" } } };
  await admin.patch(sandboxesV1alpha1, key, { type: "merge", body: labelled });
  const after = await admin.get(sandboxes, key);
  expect(after.metadata.labels?.["seen"]).toBe("true");
  expect(after.spec.autoSuspension?.inactivityTimeoutSeconds).toBe(600);
  expect(after.status?.nodeName).toBe("fake-node");
  expect((await admin.get(pods, key)).metadata.uid).toBe(uid);

  await ground.create(sandboxes, aSandbox("new"));
  const { items } = await admin.list(sandboxesV1alpha1, { namespace });
  expect(items.map(({ apiVersion, metadata }) => `${apiVersion} ${metadata.name}`).sort()).toEqual([
    "agents.x-k8s.io/v1alpha1 new",
    "agents.x-k8s.io/v1alpha1 old",
  ]);
});

test("conversion on a cluster: an old claim names its shadow pool and is served from it", async () => {
  await using ground = await Ground.open(admin);
  await ground.create(sandboxTemplates, aTemplate("tpl"));
  await ground.create(sandboxWarmPools, aPool("shadow-pool-tpl", "tpl", 0));
  const spec = { sandboxTemplateRef: { name: "tpl" } };
  await ground.create(sandboxClaimsV1alpha1, {
    apiVersion: "extensions.agents.x-k8s.io/v1alpha1",
    kind: "SandboxClaim",
    metadata: { name: "c" },
    spec,
  });
  const bound = await ground.until(sandboxClaims, "c", (each) => conditionOf(each, "Ready")?.status === "True");
  expect(bound.spec.warmPoolRef.name).toBe("shadow-pool-tpl");
  expect((await ground.get(sandboxClaimsV1alpha1, "c")).spec).toMatchObject(spec);
});

const holderOf = async (): Promise<string> =>
  (await admin.get(leases, { namespace: system, name: "a3317529.agent-sandbox.x-k8s.io" })).spec?.holderIdentity ?? "";

/** How long a claim that is made at this very moment takes to be served. */
async function claimed(ground: Ground, name: string): Promise<number> {
  const startMs = performance.now();
  await ground.create(sandboxClaims, aClaim(name, "pool"));
  await ground.until(sandboxClaims, name, (claim) => conditionOf(claim, "Ready")?.status === "True");
  return Math.round(performance.now() - startMs);
}

test("hand-over on a cluster: claims are served across the end and the loss of the leader", {
  timeout: 300_000,
}, async () => {
  await using ground = await Ground.open(admin);
  await ground.create(sandboxTemplates, aTemplate("tpl"));
  await ground.create(sandboxWarmPools, aPool("pool", "tpl", 2));
  await ground.until(sandboxWarmPools, "pool", ({ status }) => status?.readyReplicas === 2);
  const leader = await holderOf();
  const [secondPort = 0, thirdPort = 0] = await freePorts(2);
  const second = await startReplica(cluster, "second", secondPort);
  ending.unshift(async () => second[Symbol.asyncDispose]());
  expect(await second.metrics()).not.toContain(
    'leader_election_master_status{name="a3317529.agent-sandbox.x-k8s.io"} 1',
  );

  const stopped = first[Symbol.asyncDispose]();
  const gracefulMs = await claimed(ground, "after-sigterm");
  await stopped;
  expect(first.daemon.exitCode()).toBe(0);
  expect(await holderOf()).not.toBe(leader);

  await using _third = await startReplica(cluster, "third", thirdPort);
  const between = await holderOf();
  await second.kill();
  const killedMs = await claimed(ground, "after-kill");
  expect(await holderOf()).not.toBe(between);
  process.stdout.write(`hand-over: a claim is Ready ${gracefulMs} ms after SIGTERM and ${killedMs} ms after kill -9\n`);

  const bound = await ground.list(sandboxClaims);
  expect(new Set(bound.map(({ status }) => status?.sandbox?.name)).size).toBe(2);
  await ground.untilList(sandboxes, (all) => all.length === 4);
});
