import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { engineVerbs } from "../../packages/cli/src/definitions/engine-verbs.ts";
import { componentRoles } from "../../packages/server/src/apiserver/auth/component-roles.ts";
import { systemNamespace } from "../../packages/server/src/apiserver/auth/components.ts";
import { ownUserRoles } from "../../packages/server/src/apiserver/auth/user-roles.ts";
import { controllerFlags, parseControllerFlags } from "../../packages/server/src/controllers/process/flags.ts";
import { parseRouterFlags, routerFlags } from "../../packages/server/src/main/router-flags.ts";
import { rootDir } from "../../scripts/checkout.ts";
import type { Deployment, KubeObject, PolicyRule, Service } from "./kubernetes-kinds.ts";

const dir = path.join(rootDir, "deploy/kubernetes");
const objects = readdirSync(dir)
  .filter((file) => file !== "kustomization.yaml")
  .flatMap((file) => parseAllDocuments(readFileSync(path.join(dir, file), "utf8")))
  .map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as KubeObject;
  });
const ofKind = <T extends KubeObject>(kind: string): T[] =>
  objects.filter((object): object is T => object.kind === kind);
const named = <T extends KubeObject>(kind: string, name: string): T => {
  const found = ofKind<T>(kind).find(({ metadata }) => metadata.name === name);
  if (found === undefined) throw new Error(`no ${kind} ${name}`);
  return found;
};
const containerOf = ({ spec }: Deployment) => spec.template.spec.containers[0];
const portOf = (address: string): number => Number(address.split(":").at(-1));

test("deploy: the kustomization names every file once, and every CRD", () => {
  const { resources } = parse(readFileSync(path.join(dir, "kustomization.yaml"), "utf8")) as { resources: string[] };
  const files = readdirSync(dir).filter((file) => file !== "kustomization.yaml");
  expect(resources.toSorted()).toEqual([...files, "../../spec"].toSorted());
  const base = parse(readFileSync(path.join(rootDir, "spec/kustomization.yaml"), "utf8")) as { resources: string[] };
  const crds = readdirSync(path.join(rootDir, "spec/crds")).filter((file) => file.endsWith(".yaml"));
  expect(base.resources.toSorted()).toEqual(crds.map((file) => `crds/${file}`).toSorted());
});

test("deploy: every namespaced object is in the namespace of our components, and none has a twin", () => {
  const policies = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
  const clusterWide = new Set(["Namespace", "ClusterRole", "ClusterRoleBinding", ...policies]);
  const wrong = objects.filter(
    ({ kind, metadata }) => (metadata.namespace === systemNamespace) === clusterWide.has(kind),
  );
  expect(wrong).toEqual([]);
  const keys = objects.map(({ kind, metadata }) => `${kind}/${metadata.name}`);
  expect(new Set(keys).size).toBe(keys.length);
});

test("deploy: cluster roles are those that the one-machine engine binds to the same accounts", () => {
  const accounts = ["agent-sandbox-controller", "sandbox-router"];
  const ours = componentRoles().filter(({ boundTo }) => boundTo?.kind === "account" && accounts.includes(boundTo.name));
  const shipped = ofKind<KubeObject & { rules: PolicyRule[] }>("ClusterRole");
  const people = ownUserRoles();
  expect(shipped.map(({ metadata: { name }, rules }) => ({ name, rules }))).toEqual(
    [...ours, ...people].map(({ name, rules }) => ({ name, rules })),
  );
  for (const { name, aggregatedTo } of people)
    expect(named("ClusterRole", name).metadata).toMatchObject({
      labels: { [`rbac.authorization.k8s.io/aggregate-to-${aggregatedTo}`]: "true" },
    });
  for (const { name, boundTo } of ours) {
    expect(named("ClusterRoleBinding", name)).toMatchObject({
      roleRef: { kind: "ClusterRole", name },
      subjects: [{ kind: "ServiceAccount", name: boundTo?.name, namespace: systemNamespace }],
    });
  }
});

test("deploy: the controller reads the Secret of its webhook and no other", () => {
  const { rules } = named<KubeObject & { rules: PolicyRule[] }>("Role", "agent-sandbox-controller");
  expect(rules).toEqual([
    { apiGroups: [""], resources: ["secrets"], verbs: ["create"] },
    {
      apiGroups: [""],
      resources: ["secrets"],
      resourceNames: ["agent-sandbox-webhook-certs"],
      verbs: ["get", "patch", "update"],
    },
  ]);
});

test("deploy: selectors match the Pods, and Services name ports that the Pods have", () => {
  const templates = ofKind<Deployment>("Deployment").map(({ spec }) => spec.template);
  for (const { metadata, spec } of ofKind<Service>("Service")) {
    const behind = templates.find((template) => matches(spec.selector, template.metadata.labels));
    expect(behind, metadata.name).toBeDefined();
    const ports = behind?.spec.containers.flatMap((container) => container.ports.map(({ name }) => name));
    for (const { targetPort } of spec.ports) expect(ports).toContain(targetPort);
  }
  for (const { spec } of ofKind<Deployment>("Deployment"))
    expect(matches(spec.selector.matchLabels, spec.template.metadata.labels)).toBe(true);
});

test("deploy: the controller's arguments, ports and probes are those of its flags", () => {
  const container = containerOf(named<Deployment>("Deployment", "agent-sandbox-controller"));
  const [verb, ...args] = container?.args ?? [];
  expect(engineVerbs.map(({ name }) => name)).toContain(verb);
  const { values, errors, warnings } = parseControllerFlags(args);
  expect({ errors, warnings }).toEqual({ errors: [], warnings: [] });
  expect(values).toMatchObject({ extensions: true, "leader-elect": true, "webhook-namespace": systemNamespace });
  expect(portsOf(container)).toEqual({
    metrics: portOf(values["metrics-bind-address"]),
    healthz: portOf(values["health-probe-bind-address"]),
    webhook: values["webhook-port"],
  });
  expect(container).toMatchObject(probes);
  expect(named<Service>("Service", values["webhook-service-name"]).spec.ports).toEqual([
    { name: "webhook", port: 443, targetPort: "webhook" },
  ]);
  expect(controllerFlags["webhook-cert-dir"].fallback.startsWith("/tmp/")).toBe(true);
  expect(container?.volumeMounts.map(({ mountPath }) => mountPath)).toContain("/tmp");
});

test("deploy: the router's arguments, ports and probes are those of its flags, and its callers are asked who they are", () => {
  const deployment = named<Deployment>("Deployment", "sandbox-router");
  const container = containerOf(deployment);
  const [verb, ...args] = container?.args ?? [];
  expect(engineVerbs.map(({ name }) => name)).toContain(verb);
  const values = parseRouterFlags(args, {});
  expect(values).toMatchObject({ "authz-mode": "access-review", "insecure-listen": "", "tunnel-namespaces": "" });
  expect(portsOf(container)).toEqual({
    proxy: portOf(values["http-bind-address"]),
    metrics: portOf(values["metrics-bind-address"]),
    healthz: portOf(values["health-probe-bind-address"]),
  });
  expect(container).toMatchObject(probes);
  // The kubelet must not kill it while it lets exchanges end.
  const drainMs = routerFlags["shutdown-delay"].fallback + values["shutdown-timeout"];
  expect(deployment.spec.template.spec.terminationGracePeriodSeconds * 1000).toBeGreaterThan(drainMs);
  expect(named<Service>("Service", "sandbox-router-svc").spec.ports).toEqual([
    { name: "proxy", port: 8080, targetPort: "proxy" },
  ]);
});

test("deploy: no Pod of ours has more than it needs", () => {
  for (const deployment of ofKind<Deployment>("Deployment")) {
    expect(deployment.spec.template.spec.securityContext).toMatchObject({
      runAsNonRoot: true,
      seccompProfile: { type: "RuntimeDefault" },
    });
    expect(containerOf(deployment)?.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
  }
});

test("deploy: the systemd unit starts the engine with flags that it has", () => {
  const unit = readFileSync(path.join(rootDir, "deploy/systemd/agent-sandbox.service"), "utf8");
  const [, verb = "", ...args] = /^ExecStart=(.*)$/m.exec(unit)?.[1]?.split(" ") ?? [];
  const definition = engineVerbs.find(({ name }) => name === verb);
  const known = definition?.flags?.flatMap(({ flag }) => flag.match(/--[a-z-]+/g) ?? []);
  expect(args.filter((word) => word.startsWith("--")).filter((flag) => known?.includes(flag) !== true)).toEqual([]);
  expect(verb).toBe("up");
});

test("deploy: the image starts the command that the manifests give arguments to", () => {
  const dockerfile = readFileSync(path.join(rootDir, "deploy/Dockerfile"), "utf8");
  const entrypoint = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(dockerfile)?.[1] ?? "[]") as string[];
  const main = entrypoint.at(-1)?.replace(/^\/app\//, "") ?? "";
  expect(readFileSync(path.join(rootDir, main), "utf8")).not.toBe("");
  expect(dockerfile).toMatch(/^USER 65532:65532$/m);
});

const probes = {
  livenessProbe: { httpGet: { path: "/healthz", port: "healthz" } },
  readinessProbe: { httpGet: { path: "/readyz", port: "healthz" } },
};

function portsOf(container: ReturnType<typeof containerOf>): Record<string, number> {
  return Object.fromEntries((container?.ports ?? []).map(({ name, containerPort }) => [name, containerPort]));
}

function matches(selector: Readonly<Record<string, string>>, labels: Readonly<Record<string, string>>): boolean {
  return Object.entries(selector).every(([key, value]) => labels[key] === value);
}

test("deploy: the router's policy lets it reach every port of sandboxes and an API server that is no Pod (G21)", () => {
  interface Policy extends KubeObject {
    readonly spec: { readonly egress: readonly { readonly to?: unknown; readonly ports: readonly EgressPort[] }[] };
  }
  interface EgressPort {
    readonly port: number;
    readonly endPort?: number;
  }
  const { egress } = named<Policy>("NetworkPolicy", "sandbox-router").spec;
  const toSandboxes = egress.filter(
    ({ to, ports }) => to !== undefined && ports.some(({ endPort }) => endPort === 65_535),
  );
  expect(toSandboxes).toMatchObject([{ to: [{ namespaceSelector: {} }], ports: [{ port: 1 }] }]);
  const anywhere = egress.filter(({ to }) => to === undefined).flatMap(({ ports }) => ports.map(({ port }) => port));
  expect(anywhere.toSorted((a, b) => a - b)).toEqual([443, 6443]);
});
