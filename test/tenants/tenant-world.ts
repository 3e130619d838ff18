import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { namespaces, type Sandbox, sandboxes, serviceAccounts } from "@agent-sandbox/api";
import { parse } from "yaml";
import { rootDir } from "../../scripts/checkout.ts";
import { RealEngine } from "../node/real-engine.ts";
import { readyReason } from "../router/engine-router.ts";

const rbac = "rbac.authorization.k8s.io";
const routerPort = 7080;
export const systemNamespace = "agent-sandbox-system";

/** Somebody with rights in one namespace and a sandbox there; all sandboxes have the same name. */
export interface Tenant {
  readonly namespace: string;
  readonly token: string;
  readonly kubeconfig: string;
  readonly address: string;
}

/** A real engine with tenants on it. */
export class TenantWorld implements AsyncDisposable {
  readonly engine: RealEngine;
  /** Where the router answers out here. */
  readonly routerPort: number;
  readonly #tenants = new Map<string, Tenant>();

  private constructor(engine: RealEngine, port: number) {
    this.engine = engine;
    this.routerPort = port;
  }

  /** Tenants by name, each with the ClusterRole he has in the namespace of that name. */
  static async open(tenants: Readonly<Record<string, string>>): Promise<TenantWorld> {
    const engine = await RealEngine.open("--router-listen", `127.0.0.1:${routerPort}`);
    const door = path.join(path.dirname(engine.kubeconfig), "router-door.sock");
    const world = new TenantWorld(engine, await engine.place.openDoor(routerPort, door));
    await world.#post(`/apis/${rbac}/v1/namespaces/${systemNamespace}/roles`, documentedTunnelRole());
    await Promise.all(Object.entries(tenants).map(([name, role]) => world.#openTenant(name, role)));
    return world;
  }

  tenant(name: string): Tenant {
    const found = this.#tenants.get(name);
    if (found === undefined) throw new Error(`no tenant ${name}`);
    return found;
  }

  async #openTenant(namespace: string, role: string): Promise<void> {
    const { client } = this.engine;
    await client.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
    const metadata = { namespace, name: "user" };
    await client.create(serviceAccounts, { apiVersion: "v1", kind: "ServiceAccount", metadata });
    await this.#bind(namespace, namespace, { kind: "ClusterRole", name: role });
    await this.#bind(systemNamespace, namespace, { kind: "Role", name: "sandbox-router-tunnel" });
    await client.create(sandboxes, boxOf(namespace));
    const ready = await this.engine.objectWhere(
      sandboxes,
      { namespace, name: "box" },
      (found) => readyReason(found) === "DependenciesReady",
    );
    const token = await this.#token(namespace);
    const address = ready.status?.podIPs?.[0] ?? "";
    this.#tenants.set(namespace, { namespace, token, kubeconfig: this.#kubeconfig(namespace, token), address });
  }

  async #bind(namespace: string, of: string, role: { kind: string; name: string }): Promise<void> {
    await this.#post(`/apis/${rbac}/v1/namespaces/${namespace}/rolebindings`, {
      apiVersion: `${rbac}/v1`,
      kind: "RoleBinding",
      metadata: { name: `${role.name}-${of}` },
      roleRef: { apiGroup: rbac, ...role },
      subjects: [{ kind: "ServiceAccount", name: "user", namespace: of }],
    });
  }

  async #token(namespace: string): Promise<string> {
    const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} };
    const path = `/api/v1/namespaces/${namespace}/serviceaccounts/user/token`;
    return (await this.#post<{ status: { token: string } }>(path, body)).status.token;
  }

  /** The administrator's, with the token in place of the certificate. */
  #kubeconfig(namespace: string, token: string): string {
    const config = parse(readFileSync(this.engine.kubeconfig, "utf8")) as { users: { user: unknown }[] };
    for (const entry of config.users) entry.user = { token };
    const file = path.join(path.dirname(this.engine.kubeconfig), `${namespace}.kubeconfig`);
    writeFileSync(file, JSON.stringify(config), { mode: 0o600 });
    return file;
  }

  #post<T = unknown>(path: string, body: object): Promise<T> {
    return this.engine.client.raw<T>({ method: "POST", path, body });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.engine[Symbol.asyncDispose]();
  }
}

/** The Role as docs/tenants.md gives it to administrators. */
export function documentedTunnelRole(): object {
  const text = readFileSync(path.join(rootDir, "docs/tenants.md"), "utf8");
  return parse(/```yaml\n([\s\S]*?)```/.exec(text)?.[1] ?? "") as object;
}

function boxOf(namespace: string): Sandbox {
  const containers = [
    {
      name: "main",
      image: "host",
      command: ["sh", "-c", `echo says the box of ${namespace}; exec sleep infinity`],
      env: [{ name: "WHOSE", value: namespace }],
    },
  ];
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "box", namespace },
    spec: { podTemplate: { spec: { terminationGracePeriodSeconds: 0, containers } } },
  };
}
