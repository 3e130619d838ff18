import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import os from "node:os";
import path from "node:path";
import type { Credentials } from "@agent-sandbox/kube";
import { httpTransport } from "@agent-sandbox/kube";
import { writeKubeconfig } from "../../packages/server/src/apiserver/auth/kubeconfig.ts";
import { openPki, type Pki } from "../../packages/server/src/apiserver/auth/pki.ts";
import type { TestNamespace } from "../node/namespace.ts";
import { type Daemon, logTail, startDaemon } from "./child.ts";
import { programPath } from "./programs.ts";

/** Which parts of Kubernetes to start besides etcd and the API server. */
export interface ClusterOptions {
  /** Garbage collection, namespaces, service accounts, endpoints, quota; default true. */
  readonly controllerManager?: boolean;
  /** Default true. */
  readonly scheduler?: boolean;
  /** Whether etcd waits for the disk; default false, because tests do not survive power loss anyway. */
  readonly fsync?: boolean;
  /** Flags of kube-apiserver to add. */
  readonly apiserverFlags?: readonly string[];
  /** Controllers to start besides. */
  readonly controllers?: readonly string[];
  /** Gives the API server credentials for kubelets; default false. */
  readonly dialsKubelets?: boolean;
  /** Namespaces in which everything runs; the API server is reached through a door then. Default: this machine's loopback. */
  readonly place?: TestNamespace;
}

/** A real Kubernetes on loopback without nodes. */
export interface Cluster extends AsyncDisposable {
  readonly server: string;
  readonly dir: string;
  /** Of a member of system:masters. */
  readonly kubeconfig: string;
  readonly admin: Credentials;
  readonly caPem: string;
  readonly daemons: readonly Daemon[];
  /** A kubeconfig for another user. */
  kubeconfigFor(user: string, groups: readonly string[]): Promise<string>;
  /** The same for a program that runs in the cluster's own namespaces. */
  innerKubeconfigFor(user: string, groups: readonly string[]): Promise<string>;
}

/** How long the API server may take on a busy machine. */
const startMaxMs = 120_000;

/** The controllers a test cluster needs; the rest would only cost time. */
const controllerNames = [
  "garbage-collector-controller",
  "namespace-controller",
  "serviceaccount-controller",
  "root-ca-certificate-publisher-controller",
  "clusterrole-aggregation-controller",
  "endpointslice-controller",
  "resourcequota-controller",
  "persistentvolume-binder-controller",
  "persistentvolumeclaim-protection-controller",
  "pod-garbage-collector-controller",
  "disruption-controller",
];

/** Starts the cluster and resolves when it answers; dispose it to end every process and remove every file. */
export async function openCluster(options: ClusterOptions = {}): Promise<Cluster> {
  const dir = await mkdtemp(path.join(os.tmpdir(), "agent-sandbox-cluster-"));
  const daemons: Daemon[] = [];
  const dispose = async (): Promise<void> => {
    for (const daemon of daemons.toReversed()) await daemon.stop();
    await rm(dir, { recursive: true, force: true });
  };
  try {
    return { ...(await start(dir, daemons, options)), [Symbol.asyncDispose]: dispose };
  } catch (error) {
    await dispose();
    throw error;
  }
}

async function start(
  dir: string,
  daemons: Daemon[],
  options: ClusterOptions,
): Promise<Omit<Cluster, typeof Symbol.asyncDispose>> {
  const [etcdPort = 0, peerPort = 0, apiPort = 0] = await freePorts(3);
  const pki = await openPki({ directory: path.join(dir, "pki"), nowMs: Date.now() });
  const launch = (name: "etcd" | "kube-apiserver" | "kube-controller-manager" | "kube-scheduler", args: string[]) => {
    const [file, argv] = options.place?.inside(programPath(name), ...args) ?? [programPath(name), args];
    daemons.push(startDaemon(name, file, argv, path.join(dir, `${name}.log`)));
  };
  const inner = `https://127.0.0.1:${apiPort}`;
  const door = await options.place?.openDoor(apiPort, path.join(dir, "door.sock"));
  const server = door === undefined ? inner : `https://127.0.0.1:${door}`;
  launch("etcd", etcdFlags(dir, etcdPort, peerPort, options.fsync ?? false));
  const kubeletFlags = options.dialsKubelets === true ? await kubeletClientFlags(pki, dir) : [];
  launch("kube-apiserver", [
    ...(await apiserverFlags(dir, pki, etcdPort, apiPort)),
    ...kubeletFlags,
    ...(options.apiserverFlags ?? []),
  ]);
  const kubeconfigFor = (user: string, groups: readonly string[]) => issueKubeconfig(dir, pki, server, user, groups);
  const innerKubeconfigFor = (user: string, groups: readonly string[]) =>
    issueKubeconfig(dir, pki, inner, user, groups, "inner-");
  const adminLeaf = await clientLeaf(pki, "kubernetes-admin", ["system:masters"]);
  const admin = { server, ca: pki.caBundlePem, cert: adminLeaf.certificatePem, key: adminLeaf.privateKeyPem };
  await untilReady(admin, daemons);
  if (options.controllerManager ?? true) {
    const kubeconfig = await innerKubeconfigFor("system:kube-controller-manager", ["system:masters"]);
    launch("kube-controller-manager", controllerManagerFlags(dir, kubeconfig, options.controllers ?? []));
  }
  if (options.scheduler ?? true) {
    const kubeconfig = await innerKubeconfigFor("system:kube-scheduler", []);
    launch("kube-scheduler", [`--kubeconfig=${kubeconfig}`, "--leader-elect=false", "--secure-port=0", ...clientRate]);
  }
  const kubeconfig = await kubeconfigFor("kubernetes-admin", ["system:masters"]);
  return { server, dir, kubeconfig, admin, caPem: pki.caBundlePem, daemons, kubeconfigFor, innerKubeconfigFor };
}

async function kubeletClientFlags(pki: Pki, dir: string): Promise<string[]> {
  await clientLeaf(pki, "kube-apiserver-kubelet-client", ["system:masters"]);
  const file = path.join(dir, "pki/client-kube-apiserver-kubelet-client");
  return [
    `--kubelet-client-certificate=${file}.crt`,
    `--kubelet-client-key=${file}.key`,
    "--kubelet-preferred-address-types=InternalIP",
  ];
}

/** Lets the parts speak as fast as the machine allows, so that figures are not those of a client-side limit. */
const clientRate = ["--kube-api-qps=1000", "--kube-api-burst=2000"];

function etcdFlags(dir: string, port: number, peerPort: number, fsync: boolean): string[] {
  const peers = `http://127.0.0.1:${peerPort}`;
  return [
    `--data-dir=${path.join(dir, "etcd")}`,
    `--listen-client-urls=http://127.0.0.1:${port}`,
    `--advertise-client-urls=http://127.0.0.1:${port}`,
    `--listen-peer-urls=${peers}`,
    `--initial-advertise-peer-urls=${peers}`,
    `--initial-cluster=default=${peers}`,
    "--log-level=warn",
    ...(fsync ? [] : ["--unsafe-no-fsync"]),
  ];
}

async function apiserverFlags(dir: string, pki: Pki, etcdPort: number, port: number): Promise<string[]> {
  const pkiDir = path.join(dir, "pki");
  const names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
  await pki.leaf({ file: "apiserver", commonName: "kube-apiserver", use: { kind: "server", names } }, Date.now());
  const { publicKeyPem } = await pki.serviceAccountKey();
  await writeFile(path.join(pkiDir, "sa.pub"), publicKeyPem);
  return [
    `--etcd-servers=http://127.0.0.1:${etcdPort}`,
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--endpoint-reconciler-type=none",
    `--secure-port=${port}`,
    `--tls-cert-file=${path.join(pkiDir, "apiserver.crt")}`,
    `--tls-private-key-file=${path.join(pkiDir, "apiserver.key")}`,
    `--client-ca-file=${path.join(pkiDir, "ca.crt")}`,
    `--service-account-key-file=${path.join(pkiDir, "sa.pub")}`,
    `--service-account-signing-key-file=${path.join(pkiDir, "sa.key")}`,
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    "--service-cluster-ip-range=10.250.0.0/16",
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--allow-privileged=true",
  ];
}

function controllerManagerFlags(dir: string, kubeconfig: string, more: readonly string[]): string[] {
  return [
    `--kubeconfig=${kubeconfig}`,
    "--leader-elect=false",
    "--secure-port=0",
    `--controllers=${[...controllerNames, ...more].join(",")}`,
    `--root-ca-file=${path.join(dir, "pki/ca.crt")}`,
    `--service-account-private-key-file=${path.join(dir, "pki/sa.key")}`,
    ...clientRate,
  ];
}

function clientLeaf(pki: Pki, commonName: string, organizations: readonly string[]) {
  const file = `client-${commonName.replaceAll(/[^a-z0-9-]/g, "-")}`;
  return pki.leaf({ file, commonName, organizations, use: { kind: "client" } }, Date.now());
}

async function issueKubeconfig(
  dir: string,
  pki: Pki,
  server: string,
  user: string,
  groups: readonly string[],
  prefix = "",
): Promise<string> {
  const credentials = await clientLeaf(pki, user, groups);
  const file = path.join(dir, `${prefix}${user.replaceAll(/[^a-z0-9-]/g, "-")}.kubeconfig`);
  await writeKubeconfig(file, {
    server,
    caBundlePem: pki.caBundlePem,
    credentials,
    name: "test",
    namespace: "default",
  });
  return file;
}

async function untilReady(admin: Credentials, daemons: readonly Daemon[]): Promise<void> {
  const endMs = Date.now() + startMaxMs;
  for (;;) {
    const ended = daemons.find((daemon) => daemon.exitCode() !== undefined);
    if (ended !== undefined) throw new Error(`${ended.name} ended while starting:\n${logTail(ended)}`);
    if (await answers(admin)) return;
    if (Date.now() > endMs)
      throw new Error(`the API server does not answer:\n${daemons.map((d) => logTail(d)).join("\n")}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function answers(admin: Credentials): Promise<boolean> {
  const transport = httpTransport(admin, { protocol: "http1" });
  try {
    const ready = await transport.request({ method: "GET", path: "/readyz" });
    for await (const _ of ready.body);
    const namespace = await transport.request({ method: "GET", path: "/api/v1/namespaces/default" });
    for await (const _ of namespace.body);
    return ready.status === 200 && namespace.status === 200;
  } catch {
    return false; // The connection is refused until the API server listens; that it has ended is looked for by the caller.
  } finally {
    await transport.close();
  }
}

/** Ports that were free a moment ago, all different. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      return server;
    }),
  );
  const ports = servers.map((server) => (server.address() as { port: number }).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}
