import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { ignore, sandboxes, sandboxTemplates, sandboxWarmPools } from "@agent-sandbox/api";
import { type EngineOptions, Sandbox } from "@agent-sandbox/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";
import { clusterForms } from "./cluster-forms.ts";
import { type Form, routerForms } from "./router-forms.ts";
import { systemNamespace, type Tenant, TenantWorld } from "./tenant-world.ts";

const execute = promisify(execFile);
const names = ["red", "blue"] as const;
const forms: Readonly<Record<string, Form>> = { ...routerForms, ...clusterForms };
let world: TenantWorld;

beforeAll(async () => {
  world = await TenantWorld.open({ red: "sandbox-user", blue: "admin" });
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const matrix = Object.keys(forms).flatMap((form) =>
  names.flatMap((who) => names.map((whose) => ({ form, who, whose }))),
);

test.concurrent.each(matrix)("tenants: by $form, $who asks for the sandbox of $whose", async ({ form, who, whose }) => {
  const seen = await (forms[form] as Form)(world, world.tenant(who), world.tenant(whose));
  if (who === whose) expect(seen).toBe(whose);
  else expect(seen).toMatch(/^refused: (401|403|grpc 7|grpc 16|forbidden|network|own sandbox instead)$/);
});

interface Right {
  readonly verb: string;
  readonly group?: string;
  readonly resource: string;
  readonly subresource?: string;
  readonly name?: string;
  readonly isGiven: boolean;
}

/** What the documented Role gives in the router's namespace, and a sample of what it does not. */
const rights: readonly Right[] = [
  { verb: "get", resource: "services", name: "sandbox-router-svc", isGiven: true },
  { verb: "get", resource: "services", name: "another", isGiven: false },
  { verb: "create", resource: "pods", subresource: "portforward", name: "sandbox-router", isGiven: true },
  { verb: "create", resource: "pods", subresource: "portforward", name: "another", isGiven: false },
  { verb: "create", resource: "pods", subresource: "exec", name: "sandbox-router", isGiven: false },
  { verb: "list", resource: "pods", isGiven: true },
  { verb: "create", resource: "pods", isGiven: false },
  { verb: "get", resource: "secrets", isGiven: false },
  { verb: "create", group: "extensions.agents.x-k8s.io", resource: "sandboxclaims", isGiven: false },
  { verb: "create", group: "agents.x-k8s.io", resource: "sandboxes", subresource: "connect", isGiven: false },
];

test.each(rights)(
  "tenants: in the router's namespace, $verb $resource $subresource $name is given: $isGiven",
  async ({ isGiven, ...attributes }) => {
    const answer = await world.engine.client.raw<{ status: { allowed: boolean } }>({
      method: "POST",
      path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
      body: {
        apiVersion: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        spec: {
          user: "system:serviceaccount:red:user",
          groups: ["system:serviceaccounts", "system:serviceaccounts:red", "system:authenticated"],
          resourceAttributes: { ...attributes, namespace: systemNamespace },
        },
      },
    });
    expect(answer.status.allowed).toBe(isGiven);
  },
);

/** How the tenant with the role `sandbox-user` reaches the engine; nothing of the administrator's is in it. */
function engineOf({ kubeconfig, namespace }: Tenant): EngineOptions {
  return { kubeconfig, namespace, routerUrl: `https://127.0.0.1:${world.routerPort}` };
}

test("tenants: a sandbox-user suspends, resumes and extends a sandbox with the SDK", async () => {
  const box = await Sandbox.get("box", { engine: engineOf(world.tenant("red")) });
  await box.suspend({ hold: true });
  expect((await box.info()).state).toBe("suspended");
  await box.resume();
  expect((await box.run(["printenv", "WHOSE"])).stdout.trim()).toBe("red");
  await box.setTimeout(3_600_000);
  const before = (await box.info()).shutdownAt?.getTime() ?? 0;
  await box.extend(60_000);
  expect((await box.info()).shutdownAt?.getTime()).toBe(before + 60_000);
  await box.setTimeout(undefined);
  await box.close();
});

test("tenants: a sandbox-user suspends and resumes a sandbox with the CLI", async () => {
  const { kubeconfig, namespace } = world.tenant("red");
  const main = path.join(rootDir, "packages/cli/src/main.ts");
  for (const [verb, done] of Object.entries({ suspend: "suspended", resume: "resumed" })) {
    const args = [main, verb, "box", "--kubeconfig", kubeconfig, "--namespace", namespace];
    const { stdout } = await execute(process.execPath, args, { timeout: 60_000 });
    expect(stdout).toBe(`sandboxes/box ${done}\n`);
  }
});

test("tenants: a sandbox-user claims a sandbox, works in it and deletes it", async () => {
  const { client } = world.engine;
  const podTemplate = { spec: { containers: [{ name: "main", image: "host", command: ["sleep", "infinity"] }] } };
  const apiVersion = "extensions.agents.x-k8s.io/v1beta1";
  const metadata = { namespace: "red", name: "pool" };
  await client.create(sandboxTemplates, { apiVersion, kind: "SandboxTemplate", metadata, spec: { podTemplate } });
  const spec = { replicas: 0, sandboxTemplateRef: { name: "pool" } };
  await client.create(sandboxWarmPools, { apiVersion, kind: "SandboxWarmPool", metadata, spec });
  const claimed = await Sandbox.claim("pool", { engine: engineOf(world.tenant("red")) });
  expect((await claimed.run(["echo", "here"])).stdout).toBe("here\n");
  await claimed.delete();
  const key = { namespace: "red", name: claimed.name };
  await expect.poll(() => client.get(sandboxes, key).catch(ignore("NotFound")), { timeout: 30_000 }).toBeUndefined();
});

test("tenants: a sandbox-user cannot give a sandbox another identity, nor make one of his own", async () => {
  const { kubeconfig } = world.tenant("red");
  const [kubectl = ""] = world.engine.kubectlArgv();
  const refusal = (...args: string[]): Promise<string> =>
    execute(kubectl, ["--kubeconfig", kubeconfig, "--namespace", "red", ...args], { timeout: 60_000 }).then(
      ({ stdout }) => stdout,
      ({ stderr }: { stderr: string }) => stderr,
    );
  const change = JSON.stringify({ spec: { podTemplate: { spec: { serviceAccountName: "user" } } } });
  expect(await refusal("patch", "sandbox", "box", "--type=merge", "-p", change)).toContain("not spec.podTemplate");
  expect(await refusal("run", "pod", "--image=host")).toContain('cannot create resource "pods"');
  expect(await refusal("delete", "sandbox", "box")).toContain('cannot delete resource "sandboxes"');
});
