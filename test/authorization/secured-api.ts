import { generateKeyPairSync } from "node:crypto";
import { createClient } from "@agent-sandbox/kube";
import { adminUser } from "../../packages/server/src/apiserver/auth/components.ts";
import { serviceAccountUser } from "../../packages/server/src/apiserver/auth/service-account-tokens.ts";
import type { UserInfo } from "../../packages/server/src/apiserver/request/user-info.ts";
import type { NodeDialer } from "../../packages/server/src/apiserver/scope/node-dialer.ts";
import { createSecurity } from "../../packages/server/src/apiserver/security.ts";
import { TestServer } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { UsageMetrics } from "../../packages/server/src/apiserver/usage/usage-metrics.ts";
import { applyBootstrap } from "../../packages/server/src/main/bootstrap.ts";

/** There are no nodes, so no connection is made. */
const noNode: NodeDialer = {
  request: () => Promise.reject(new Error("there is no node")),
  connect: () => Promise.reject(new Error("there is no node")),
};

const rbac = "rbac.authorization.k8s.io";

/** The embedded API with its roles and admission, in this process and in memory. */
export class SecuredApi implements AsyncDisposable {
  readonly server: TestServer;
  readonly #attached: AsyncDisposable;

  private constructor(server: TestServer, attached: AsyncDisposable) {
    this.server = server;
    this.#attached = attached;
  }

  /** Starts it with everything that a fresh engine has. */
  static async open(): Promise<SecuredApi> {
    const clock = { nowMs: () => Date.parse("2026-03-01T10:00:00Z") };
    const privateKeyPem = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({
      type: "pkcs8",
      format: "pem",
    }) as string;
    const serviceAccountKey = { privateKeyPem, keyId: "k" };
    const security = createSecurity({ clock, random: () => 0.5, serviceAccountKey });
    const { authorizer, admission, reader, tokens: tokenIssuer } = security;
    const usage = new UsageMetrics({ reader, dialer: noNode, clock: { ...clock, setTimer: () => () => undefined } });
    const virtualResources = [...security.virtualResources, ...usage.resources()];
    const server = new TestServer({ authorizer, admission, virtualResources, tokenIssuer });
    const attached = await security.attach(server.api.parts);
    await server.installOwnCrds();
    await applyBootstrap(createClient(server.api.transportFor(adminUser)));
    return new SecuredApi(server, attached);
  }

  /** Makes a namespace and in it an account that holds a ClusterRole there; returns whom it acts as. */
  async tenant(namespace: string, role: string, name = role): Promise<UserInfo> {
    await this.server.call("POST", "/api/v1/namespaces", {
      body: { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
    });
    await this.made(`/apis/${rbac}/v1/namespaces/${namespace}/rolebindings`, {
      apiVersion: `${rbac}/v1`,
      kind: "RoleBinding",
      metadata: { name: `${name}-${role}` },
      roleRef: { apiGroup: rbac, kind: "ClusterRole", name: role },
      subjects: [{ kind: "ServiceAccount", name, namespace }],
    });
    return serviceAccountUser(namespace, name);
  }

  /** Creates an object as the administrator and returns its uid. */
  async made(path: string, body: object): Promise<string> {
    const { status, text, body: object } = await this.server.call("POST", path, { body });
    if (status !== 201) throw new Error(`POST ${path}: ${text}`);
    return (object as { metadata: { uid: string } }).metadata.uid;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#attached[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}
