import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import {
  type CustomResourceDefinition,
  clusterRoleBindings,
  clusterRoles,
  customResourceDefinitions,
  type KubeObject,
  namespaces,
  type PodSpec,
  type Resource,
  roleBindings,
  roles,
  serviceAccounts,
} from "@agent-sandbox/api";
import { type Client, type Credentials, createClient, httpTransport } from "@agent-sandbox/kube";
import { parseAllDocuments } from "yaml";
import { bootstrapRbac } from "../../packages/server/src/apiserver/auth/bootstrap-roles.ts";
import { componentUser, systemNamespace } from "../../packages/server/src/apiserver/auth/components.ts";
import { openEmbeddedTarget } from "../conformance/embedded-target.ts";
import { type Daemon, startDaemon } from "./child.ts";
import { freePorts, openCluster } from "./cluster.ts";
import { openEmbeddedProcess } from "./embedded-process.ts";
import { fakeKubelet } from "./fake-kubelet.ts";

const rootDir = path.resolve(import.meta.dirname, "../..");

const controllerAccount = "agent-sandbox-controller";

/** An API, a fake kubelet and our controllers as a process. */
export interface Engine extends AsyncDisposable {
  readonly name: EngineName;
  readonly admin: Client;
  readonly credentials: Credentials;
  readonly kubeconfig: string;
  readonly controller: Daemon;
  /** Where the controllers serve their metrics. */
  readonly metricsPort: number;
  /** Ends the controllers and starts them again; resolves, when they have read their caches, with the moment of the start. */
  restartController(): Promise<number>;
}

/** Whose API it is. */
export type EngineName = "embedded" | "cluster";

/** How to start. */
export interface EngineOptions {
  readonly name: EngineName;
  /** Of etcd; ours always waits for the disk. */
  readonly fsync?: boolean;
  /** Gives our API server a process of its own, so that a benchmark does not measure itself; default false. */
  readonly apart?: boolean;
  /** Runs a fake kubelet in this process; default true. */
  readonly kubelet?: boolean;
  /** Flags of kube-apiserver to add. */
  readonly apiserverFlags?: readonly string[];
}

/** Starts everything and resolves when the controllers have read their caches. */
export async function openEngine(options: EngineOptions): Promise<Engine> {
  const { name, kubelet: hasKubelet = true } = options;
  const target = await openTarget(options);
  const stop = new AbortController();
  const transport = httpTransport(target.admin);
  const admin = createClient(transport);
  const ending: (() => Promise<unknown>)[] = [() => transport.close(), async () => target[Symbol.asyncDispose]()];
  const dispose = async (): Promise<void> => {
    stop.abort(new Error("the engine is closed"));
    for (const end of ending) await end();
  };
  try {
    if (name === "cluster") await prepareCluster(admin);
    if (hasKubelet) ending.unshift(startKubelet(target.admin, stop.signal));
    const kubeconfig = name === "cluster" ? await podKubeconfig(target, admin) : await certificateKubeconfig(target);
    const [metricsPort = 0, healthPort = 0] = await freePorts(2);
    const start = () => startController(path.dirname(target.kubeconfig), kubeconfig, { metricsPort, healthPort });
    let controller = start();
    ending.unshift(() => controller.stop());
    await untilHealthy(controller, healthPort);
    return {
      name,
      admin,
      credentials: target.admin,
      kubeconfig: target.kubeconfig,
      get controller() {
        return controller;
      },
      metricsPort,
      async restartController() {
        await controller.stop();
        const startMs = performance.now();
        controller = start();
        await untilHealthy(controller, healthPort);
        return startMs;
      },
      [Symbol.asyncDispose]: dispose,
    };
  } catch (error) {
    await dispose();
    throw error;
  }
}

/** Returns what waits for its end, which the signal brings about. */
function startKubelet(admin: Credentials, signal: AbortSignal): () => Promise<void> {
  const transport = httpTransport(admin);
  const running = fakeKubelet(createClient(transport), "fake-node").run(signal);
  return async () => {
    await running.catch(() => undefined);
    await transport.close();
  };
}

/** The API and what belongs to it. */
interface EngineTarget extends AsyncDisposable {
  readonly admin: Credentials;
  readonly kubeconfig: string;
  kubeconfigFor(user: string, groups: readonly string[]): Promise<string>;
}

function openTarget({ name, fsync = false, apart = false, apiserverFlags = [] }: EngineOptions): Promise<EngineTarget> {
  if (name === "cluster") return openCluster({ fsync, apiserverFlags });
  return apart ? openEmbeddedProcess() : openEmbeddedTarget();
}

/** What a cluster's operator installs: our kinds, the namespace and the rights of the controllers. */
async function prepareCluster(admin: Client): Promise<void> {
  for (const definition of ownDefinitions()) await admin.create(customResourceDefinitions, definition);
  await admin.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: systemNamespace } });
  const rbac = bootstrapRbac();
  const isOurs = ({ metadata }: KubeObject): boolean => metadata.name.startsWith("agent-sandbox-controller");
  const kinds: readonly (readonly [Resource<KubeObject>, readonly KubeObject[]])[] = [
    [clusterRoles as Resource<never>, rbac.clusterRoles],
    [clusterRoleBindings as Resource<never>, rbac.clusterRoleBindings],
    [roles as Resource<never>, rbac.roles],
    [roleBindings as Resource<never>, rbac.roleBindings],
  ];
  for (const [resource, objects] of kinds)
    for (const object of objects.filter(isOurs)) await admin.create(resource, object);
}

async function certificateKubeconfig(target: EngineTarget): Promise<string> {
  const { username, groups } = componentUser(controllerAccount);
  return target.kubeconfigFor(
    username,
    groups.filter((group) => group !== "system:authenticated"),
  );
}

/**
 * What a Pod of the cluster has: a token of its service account. The API server remembers a token for a while; a
 * certificate it would verify anew with every request.
 */
async function podKubeconfig({ admin: { server, ca }, kubeconfig }: EngineTarget, admin: Client): Promise<string> {
  const metadata = { name: controllerAccount, namespace: systemNamespace };
  await admin.create(serviceAccounts, { apiVersion: "v1", kind: "ServiceAccount", metadata });
  const { status } = await admin.raw<{ status: { token: string } }>({
    method: "POST",
    path: `/api/v1/namespaces/${systemNamespace}/serviceaccounts/${controllerAccount}/token`,
    body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { expirationSeconds: 24 * 3600 } },
  });
  const file = path.join(path.dirname(kubeconfig), "controller.kubeconfig");
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [
      {
        name: "test",
        cluster: { server, "certificate-authority-data": Buffer.from(ca ?? "").toString("base64") },
      },
    ],
    users: [{ name: "test", user: { token: status.token } }],
    contexts: [{ name: "test", context: { cluster: "test", user: "test" } }],
    "current-context": "test",
  };
  writeFileSync(file, JSON.stringify(config), { mode: 0o600 });
  return file;
}

/** Without a webhook a cluster cannot convert; the scenarios speak the stored version. */
function ownDefinitions(): CustomResourceDefinition[] {
  const text = readFileSync(path.join(rootDir, "spec/builtin/crds.json"), "utf8");
  return (JSON.parse(text) as CustomResourceDefinition[]).map((definition) => ({
    ...definition,
    spec: { ...definition.spec, conversion: { strategy: "None" } },
  }));
}

function startController(dir: string, kubeconfig: string, ports: { metricsPort: number; healthPort: number }): Daemon {
  const args = [
    "--disable-warning=ExperimentalWarning",
    path.join(rootDir, "packages/cli/src/main.ts"),
    "controller",
    `--kubeconfig=${kubeconfig}`,
    "--leader-elect=false",
    "--extensions",
    "--enable-webhook=false",
    `--metrics-bind-address=127.0.0.1:${ports.metricsPort}`,
    `--health-probe-bind-address=127.0.0.1:${ports.healthPort}`,
  ];
  return startDaemon("controller", process.execPath, args, path.join(dir, "controller.log"), deployedEnvironment());
}

/** What the manifest says of the controllers' environment: a benchmark measures what people install. */
function deployedEnvironment(): Record<string, string> {
  const manifest = readFileSync(path.join(rootDir, "deploy/kubernetes/controller.yaml"), "utf8");
  const deployment = parseAllDocuments(manifest)
    .map((document) => document.toJS() as Deployment)
    .find(({ kind }) => kind === "Deployment");
  const [container] = deployment?.spec.template.spec.containers ?? [];
  return Object.fromEntries((container?.env ?? []).map(({ name, value }) => [name, value ?? ""]));
}

interface Deployment {
  readonly kind: string;
  readonly spec: { readonly template: { readonly spec: PodSpec } };
}

async function untilHealthy(controller: Daemon, port: number): Promise<void> {
  const endMs = Date.now() + 60_000;
  for (;;) {
    if (controller.exitCode() !== undefined) {
      throw new Error(`the controller ended:\n${readFileSync(controller.logFile, "utf8").slice(-2_000)}`);
    }
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
    if (ready?.ok === true) return;
    if (Date.now() > endMs) throw new Error("the controller is not ready in time");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
