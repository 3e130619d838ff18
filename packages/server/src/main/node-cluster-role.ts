import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { configMaps, coreGroup, isReasonOf } from "@agent-sandbox/api";
import { type Client, createClient, httpTransport } from "@agent-sandbox/kube";
import { issueCertificate } from "../apiserver/auth/certificate.ts";
import type { Logger } from "../telemetry/logger.ts";
import { openArchive } from "./archive-place.ts";
import { clusterCredentials } from "./cluster-credentials.ts";
import type { ClusterNodeConfig } from "./node-cluster-config.ts";
import { startNode } from "./node-start.ts";
import { type Role, type RoleContext, runRole } from "./role.ts";

/** How long a certificate of our own lasts; it is made anew at every start, and the kubelet's own lasts as long. */
const certificateLifeMs = 365 * 24 * 60 * 60 * 1000;

/** The node agent of a cluster. */
async function startClusterNode({ config, layout, logger, user }: RoleContext<ClusterNodeConfig>): Promise<Role> {
  const client = createClient(httpTransport(await clusterCredentials(config.kubeconfig)));
  await assertKinds(client);
  const { certificate, key } = await servingCertificate(config);
  const clientCa = await clientAuthorities(client, config, logger);
  return startNode({
    client,
    layout,
    logger,
    user,
    sandboxd: config.programs.sandboxd,
    ...(config.archive !== undefined && { archive: openArchive(config.archive) }),
    settings: {
      nodeName: config.nodeName,
      nodeAddress: config.kubeletListen.host,
      podCidr: config.podCidr,
      clusterDomain: config.clusterDomain,
      kubelet: { ...config.kubeletListen, certificate, key, ...(clientCa !== undefined && { clientCa }) },
      allowRunc: config.allowRunc,
      hostPathAllowList: config.hostPathAllowList,
      podsMax: config.podsMax,
      sandboxesAhead: config.sandboxesAhead,
      imageCollection: config.imageCollection,
      limits: config.limits,
      labels: config.labels,
      taints: config.taints,
    },
  });
}

/** The agent watches Sandboxes; without the CRD its informer never syncs, and the agent would wait without a message. */
async function assertKinds(client: Client): Promise<void> {
  try {
    await client.raw({ method: "GET", path: `/apis/${coreGroup}` });
  } catch (error) {
    if (!isReasonOf(error, "NotFound")) throw error;
    throw new Error(`this cluster does not know ${coreGroup}; install our CustomResourceDefinitions first`, {
      cause: error,
    });
  }
}

async function servingCertificate(config: ClusterNodeConfig): Promise<{ certificate: string; key: string }> {
  const { serving, nodeName, kubeletListen } = config;
  if (serving !== undefined) {
    const [certificate, key] = await Promise.all(
      [serving.certFile, serving.keyFile].map((file) => readFile(path.resolve(file), "utf8")),
    );
    return { certificate: certificate ?? "", key: key ?? "" };
  }
  const nowMs = Date.now();
  const made = issueCertificate({
    commonName: `${nodeName}@${Math.floor(nowMs / 1000)}`,
    use: { kind: "server", names: [nodeName, kubeletListen.host] },
    notBeforeMs: nowMs - 60_000,
    notAfterMs: nowMs + certificateLifeMs,
    serial: randomBytes(16),
  });
  return { certificate: made.certificatePem, key: made.privateKeyPem };
}

/** Whose client certificates are believed: the operator's file, or what the API server says it believes itself. */
async function clientAuthorities(
  client: Client,
  { clientCaFile, nodeName }: ClusterNodeConfig,
  logger: Logger,
): Promise<string | undefined> {
  if (clientCaFile !== "") return readFile(path.resolve(clientCaFile), "utf8");
  const key = { namespace: "kube-system", name: "extension-apiserver-authentication" };
  try {
    return (await client.get(configMaps, key)).data?.["client-ca-file"];
  } catch (error) {
    if (!isReasonOf(error, "Forbidden") && !isReasonOf(error, "NotFound")) throw error;
    logger.warn(
      { nodeName },
      "no authorities of client certificates: the kubelet endpoint takes tokens only; give --client-ca-file, or bind extension-apiserver-authentication-reader",
    );
    return undefined;
  }
}

await runRole("node", startClusterNode, { keepRoot: true });
