import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import {
  customResourceDefinitions,
  type SandboxTemplate,
  type SandboxWarmPool,
  sandboxTemplates,
  sandboxWarmPools,
  serviceAccounts,
} from "@agent-sandbox/api";
import { systemClock } from "@agent-sandbox/kube";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { openStore } from "../../packages/server/src/store/sqlite-store.ts";
import { RealEngine } from "../node/real-engine.ts";

const insecurePort = 7081;
const extensions = "extensions.agents.x-k8s.io/v1beta1";
const rbac = "rbac.authorization.k8s.io";
/** An address of the documentation range that the gateway of the test has inside the engine's namespace. */
const gatewayAddress = "192.0.2.80";

/** An engine with everything in it that the published clients expect of a cluster, and how to reach it. */
export class PublishedEngine implements AsyncDisposable {
  readonly engine: RealEngine;
  readonly environment: Readonly<Record<string, string>>;
  readonly options: Readonly<Record<string, unknown>>;

  readonly #gateway: ChildProcess;

  private constructor(engine: RealEngine, options: Record<string, unknown>, gateway: ChildProcess) {
    this.engine = engine;
    this.#gateway = gateway;
    this.options = options;
    const kubectl = engine.kubectlArgv()[0] ?? "";
    this.environment = {
      // Everything runs inside the engine's namespace, where its own kubeconfig is right.
      KUBECONFIG: path.join(engine.dataDir, "pki/admin.kubeconfig"),
      HOME: path.dirname(engine.kubeconfig),
      PATH: `${path.dirname(kubectl)}:${process.env["PATH"]}`,
    };
  }

  /** With `isAged`, some versions of the past can no longer be watched from. */
  static async open(wish: { readonly isAged: boolean }): Promise<PublishedEngine> {
    const engine = await RealEngine.open("--insecure-listen", `127.0.0.1:${insecurePort}`);
    try {
      const staleVersion = wish.isAged ? await forgetThePast(engine) : undefined;
      await makePools(engine);
      await makeGateway(engine);
      resolveThroughEngine(engine);
      const token = await adminToken(engine);
      const options = {
        ...credentialFiles(engine),
        server: "https://127.0.0.1:7443",
        apiUrl: `http://127.0.0.1:${insecurePort}`,
        tlsUrl: "https://127.0.0.1:7080",
        gateway: "front",
        token,
        staleVersion,
        // The contract says about a second; the slack is for the interpreter on a busy machine.
        patience: 15,
      };
      return new PublishedEngine(engine, options, await openGateway(engine, token));
    } catch (error) {
      await engine[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const gone = once(this.#gateway, "exit");
    this.#gateway.kill("SIGKILL");
    await gone;
    await this.engine[Symbol.asyncDispose]();
  }
}

/** Compacts the store as hours of use would; gives a version that is gone. Only a stopped engine's store can be opened. */
async function forgetThePast(engine: RealEngine): Promise<string> {
  engine.cli("down");
  const store = openStore({ path: layoutOf(engine.dataDir).dbFile, clock: systemClock });
  const compacted = await store.compact(store.revision);
  await store.close();
  engine.up();
  await engine.connect();
  return String(compacted - 1);
}

function credentialFiles(engine: RealEngine): Record<"ca" | "cert" | "key", string> {
  const file = (name: "ca" | "cert" | "key"): string => {
    const target = path.join(path.dirname(engine.kubeconfig), `${name}.pem`);
    writeFileSync(target, String(engine.credentials[name] ?? ""), { mode: 0o600 });
    return target;
  };
  return { ca: file("ca"), cert: file("cert"), key: file("key") };
}

interface PoolWish {
  readonly replicas: number;
  readonly annotations?: Record<string, string>;
  readonly service?: boolean;
  readonly envVarsInjectionPolicy?: "Allowed";
  readonly command?: readonly string[];
}

async function makePools(engine: RealEngine): Promise<void> {
  // Clients that dial the sandbox's address find no listener at the daemon's ports unless the template says so.
  const annotations = { "agent-sandbox.dev/sandboxd": "published-ports" };
  const envVarsInjectionPolicy = "Allowed";
  const pools: Record<string, PoolWish> = {
    pool: { replicas: 2, envVarsInjectionPolicy },
    dialled: { replicas: 1, envVarsInjectionPolicy, annotations },
    served: { replicas: 1, envVarsInjectionPolicy, annotations, service: true },
    strict: { replicas: 0 },
    failing: { replicas: 0, command: ["false"] },
    succeeding: { replicas: 0, command: ["true"] },
  };
  for (const [name, wish] of Object.entries(pools)) {
    await engine.client.create(sandboxTemplates, templateOf(name, wish));
    await engine.client.create(sandboxWarmPools, poolOf(name, wish.replicas));
  }
  await engine.client.create(sandboxWarmPools, poolOf("no-template", 0));
}

/** Of an image that knows nothing of us: the machine's own tree. */
function templateOf(name: string, wish: PoolWish): SandboxTemplate {
  const { annotations = {}, service, envVarsInjectionPolicy, command } = wish;
  const containers = [{ name: "main", image: "host", command: [...(command ?? ["sleep", "infinity"])] }];
  const restart = command === undefined ? {} : { restartPolicy: "Never" as const };
  return {
    apiVersion: extensions,
    kind: "SandboxTemplate",
    metadata: { name, namespace: "default" },
    spec: {
      ...(envVarsInjectionPolicy && { envVarsInjectionPolicy }),
      ...(service && { service }),
      podTemplate: { metadata: { annotations }, spec: { terminationGracePeriodSeconds: 0, containers, ...restart } },
    },
  };
}

function poolOf(name: string, replicas: number): SandboxWarmPool {
  return {
    apiVersion: extensions,
    kind: "SandboxWarmPool",
    metadata: { name, namespace: "default" },
    spec: { replicas, sandboxTemplateRef: { name } },
  };
}

/** The Gateway kind, and one Gateway. */
async function makeGateway(engine: RealEngine): Promise<void> {
  const group = "gateway.networking.k8s.io";
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  await engine.client.create(customResourceDefinitions, {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: {
      name: `gateways.${group}`,
      annotations: { "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/2466" },
    },
    spec: {
      group,
      scope: "Namespaced",
      names: { plural: "gateways", singular: "gateway", kind: "Gateway", listKind: "GatewayList" },
      versions: [{ name: "v1", served: true, storage: true, schema }],
    },
  } as never);
  const gateway = {
    apiVersion: `${group}/v1`,
    kind: "Gateway",
    metadata: { name: "front" },
    spec: { gatewayClassName: "test" },
    status: { addresses: [{ type: "IPAddress", value: gatewayAddress }] },
  };
  const path = `/apis/${group}/v1/namespaces/default/gateways`;
  await untilServed(() => engine.client.raw({ method: "POST", path, body: gateway }));
}

/** The Gateway's data plane: a reverse proxy on port 80 of its address, with a credential of its own for the router. */
async function openGateway(engine: RealEngine, token: string): Promise<ChildProcess> {
  engine.place.must("ip", "address", "add", `${gatewayAddress}/32`, "dev", "lo");
  const script = path.join(import.meta.dirname, "gateway.ts");
  const [program, args] = engine.place.inside(process.execPath, script, gatewayAddress, "7080", token);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  await once(child.stdout as NonNullable<typeof child.stdout>, "data");
  return child;
}

/** A definition is served a moment after it is made. */
async function untilServed(create: () => Promise<unknown>): Promise<void> {
  const signal = AbortSignal.timeout(30_000);
  for (;;) {
    try {
      return void (await create());
    } catch (error) {
      if (signal.aborted) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** Programs inside the engine's namespace ask the engine's name server, as Pods of a cluster would. */
function resolveThroughEngine(engine: RealEngine): void {
  const [, a = "", b = ""] = /^(\d+)\.(\d+)\./.exec(engine.podCidr()) ?? [];
  const file = path.join(path.dirname(engine.kubeconfig), "resolv.conf");
  writeFileSync(file, `nameserver ${a}.${b}.0.1\n`);
  engine.place.must("mount", "--bind", file, "/etc/resolv.conf");
}

async function adminToken(engine: RealEngine): Promise<string> {
  const metadata = { name: "tester", namespace: "default" };
  await engine.client.create(serviceAccounts, { apiVersion: "v1", kind: "ServiceAccount", metadata });
  const binding = {
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRoleBinding",
    metadata: { name: "tester" },
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name: "cluster-admin" },
    subjects: [{ kind: "ServiceAccount", ...metadata }],
  };
  await engine.client.raw({ method: "POST", path: `/apis/${rbac}/v1/clusterrolebindings`, body: binding });
  const answer = await engine.client.raw<{ status: { token: string } }>({
    method: "POST",
    path: "/api/v1/namespaces/default/serviceaccounts/tester/token",
    body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} },
  });
  return answer.status.token;
}
