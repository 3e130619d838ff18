import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { parseControllerFlags } from "../../packages/server/src/controllers/process/flags.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { writeChart, writeManifests } from "../../scripts/release/manifests.ts";
import { type Cluster, openCluster } from "./cluster.ts";
import { programPath } from "./programs.ts";
import { startRole } from "./role.ts";

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly spec: { readonly replicas: number; readonly template: { readonly spec: PodSpec } };
}

interface PodSpec {
  readonly containers: readonly {
    readonly image: string;
    readonly args: readonly string[];
    readonly resources: object;
  }[];
  readonly securityContext: object;
}

let cluster: Cluster;
let chart = "";

beforeAll(async () => {
  cluster = await openCluster({ controllerManager: false, scheduler: false });
  chart = path.join(cluster.dir, "release/agent-sandbox");
  writeChart(chart);
  writeManifests(path.join(cluster.dir, "release"));
}, 180_000);

afterAll(async () => {
  await cluster[Symbol.asyncDispose]();
});

function run(
  program: "kubectl" | "helm",
  words: string,
  input = "",
): { code: number | null; stdout: string; stderr: string } {
  const env = { PATH: process.env["PATH"], HOME: cluster.dir, KUBECONFIG: cluster.kubeconfig };
  const options = { cwd: rootDir, encoding: "utf8", timeout: 60_000, env, input, maxBuffer: 64 << 20 } as const;
  const { status: code, stdout, stderr } = spawnSync(programPath(program), words.split(" "), options);
  return { code, stdout, stderr };
}

/** Kinds that an installation on a cluster has. */
function definitionCount(): number {
  return readdirSync(path.join(rootDir, "deploy/chart/crds")).length;
}

/** The objects of a YAML text by kind and name. */
function objectsOf(text: string): Map<string, Manifest> {
  const objects = parseAllDocuments(text).flatMap((document) => (document.toJS() as Manifest | null) ?? []);
  return new Map(objects.map((object): [string, Manifest] => [`${object.kind}/${object.metadata.name}`, object]));
}

function rendered(flags = ""): Map<string, Manifest> {
  const { code, stdout, stderr } = run("helm", `template release ${chart} ${flags}`.trim());
  expect(code, stderr).toBe(0);
  return objectsOf(stdout);
}

test("chart: helm finds nothing to say against it", () => {
  expect(run("helm", `lint --strict ${chart}`)).toMatchObject({ code: 0, stderr: "" });
});

test("chart: with its default values it is the plain manifests, CRDs included", () => {
  const plain = objectsOf(run("kubectl", "kustomize deploy/kubernetes").stdout);
  expect(Object.fromEntries(rendered("--include-crds"))).toEqual(Object.fromEntries(plain));
  expect(plain.size).toBeGreaterThan(20);
});

test("chart: values change what they name", () => {
  const objects = rendered(
    [
      "--set namespace.name=elsewhere,namespace.create=false,image.repository=registry.test/a,image.tag=v9,replicaCount=3",
      "--set controller.extensions=false,router.enabled=false,webhookServiceName=hook,service.name=numbers",
      "--set resources.limits.memory=2Gi,podSecurityContext.runAsUser=7,podLabels.app=mine,podLabels.team=red",
      "--set nodeSelector.disk=fast,controller.extraArgs={--zap-log-level=debug}",
    ].join(" "),
  );
  const keys = [...objects.keys()];
  expect(keys.filter((key) => /^Namespace|router|RoleBinding.*extensions/.test(key))).toEqual([]);
  expect(keys).toEqual(expect.arrayContaining(["Service/hook", "Service/numbers"]));
  expect(JSON.stringify([...objects.values()])).not.toContain("agent-sandbox-system");
  const { replicas, template } = objects.get("Deployment/agent-sandbox-controller")?.spec ?? {};
  expect({ replicas, template }).toMatchObject({
    replicas: 3,
    template: {
      metadata: { labels: { app: "agent-sandbox-controller", team: "red" } },
      spec: {
        nodeSelector: { disk: "fast" },
        securityContext: { runAsUser: 7 },
        containers: [{ image: "registry.test/a:v9", resources: { limits: { memory: "2Gi" } } }],
      },
    },
  });
  const [verb, ...args] = template?.spec.containers[0]?.args ?? [];
  expect(verb).toBe("controller");
  expect(parseControllerFlags(args)).toMatchObject({
    errors: [],
    values: {
      extensions: false,
      "webhook-namespace": "elsewhere",
      "router-namespace": "elsewhere",
      "webhook-service-name": "hook",
      "zap-log-level": "debug",
    },
  });
});

test("chart: every flag with a value of its own is one that the controller has", () => {
  const set = {
    clusterDomain: "a.test",
    leaderElectionNamespace: "n",
    enableTracing: true,
    enablePprof: false,
    enablePprofDebug: true,
    pprofBlockProfileRate: 2_000_000,
    pprofMutexProfileFraction: 1,
    kubeApiQps: 0.5,
    kubeApiBurst: 20,
    sandboxConcurrentWorkers: 2,
    sandboxClaimConcurrentWorkers: 3,
    sandboxWarmPoolConcurrentWorkers: 4,
    sandboxTemplateConcurrentWorkers: 5,
    sandboxWarmPoolMaxBatchSize: 6,
    sandboxWarmPoolReadinessGracePeriod: "7s",
    sandboxWarmPoolUnschedulableRecheckInterval: "8s",
    enableWarmPoolEviction: false,
  };
  const objects = rendered(`--set-json controller=${JSON.stringify(set)}`);
  const [, ...args] = objects.get("Deployment/agent-sandbox-controller")?.spec.template.spec.containers[0]?.args ?? [];
  const { values, errors, warnings } = parseControllerFlags(args);
  expect({ errors, warnings }).toEqual({ errors: [], warnings: [] });
  const flagOf = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  const {
    sandboxWarmPoolReadinessGracePeriod: _grace,
    sandboxWarmPoolUnschedulableRecheckInterval: _recheck,
    ...plain
  } = set;
  expect(values).toMatchObject(Object.fromEntries(Object.entries(plain).map(([name, value]) => [flagOf(name), value])));
  expect(values).toMatchObject({ "sandbox-warm-pool-readiness-grace-period": 7_000 });
});

test("chart: a value that it does not have is refused by name", () => {
  const refused = run("helm", `template release ${chart} --set controller.leaderElekt=true`);
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain("leaderElekt");
});

test("release: a real API server takes manifest.yaml by a plain kubectl apply, and its controller runs without the kinds of extensions.yaml", async () => {
  applied("manifest.yaml");
  expect(run("kubectl", "get crd -o name").stdout).not.toMatch(/\.extensions\.|aliases/);
  const user = "system:serviceaccount:agent-sandbox-system:agent-sandbox-controller";
  const kubeconfig = await cluster.kubeconfigFor(user, ["system:serviceaccounts", "system:authenticated"]);
  await using role = await startRole(controllerArgs(), { kubeconfig, dir: cluster.dir });
  await role.ready();
});

test("release: extensions.yaml adds its kinds, and the controller that serves them", () => {
  applied("extensions.yaml");
  expect(controllerArgs()).toContain("--extensions");
  expect(run("kubectl", "get crd -o name").stdout.trim().split("\n")).toHaveLength(definitionCount());
});

function applied(file: string): void {
  expect(run("kubectl", `apply -f ${cluster.dir}/release/${file}`)).toMatchObject({ code: 0, stderr: "" });
  // After it, because a dry run does not see the namespace that the same file makes.
  const again = run("kubectl", `apply --dry-run=server -f ${cluster.dir}/release/${file}`);
  expect(again).toMatchObject({ code: 0, stderr: "" });
}

function controllerArgs(): string[] {
  const args = "jsonpath={.spec.template.spec.containers[0].args}";
  const printed = run("kubectl", `get deployment agent-sandbox-controller -n agent-sandbox-system -o ${args}`);
  return JSON.parse(printed.stdout) as string[];
}

test("chart: helm installs, changes and removes it on a real API server", () => {
  // kube-apiserver lists a kind's objects before it lets the definition go. Of a kind that nobody has read that first
  // list fails ("storage is (re)initializing"), and the second try may see the definition as it was before, take the
  // conflict for the end of its work and rest until the resync five minutes later. So each kind is read first.
  const definitions = run("kubectl", "get crd -o name").stdout.trim().split("\n");
  for (const definition of definitions)
    expect(run("kubectl", `get -A ${definition.slice(definition.indexOf("/") + 1)}`)).toMatchObject({ code: 0 });
  // Without the namespaces controller a namespace never goes: the chart gets another.
  for (const file of ["extensions.yaml", "manifest.yaml"])
    expect(run("kubectl", `delete --wait=false --ignore-not-found -f ${cluster.dir}/release/${file}`)).toMatchObject({
      code: 0,
    });
  const gone = run("kubectl", "wait --for=delete crd --all --timeout=30s");
  expect(gone, gone.stderr).toMatchObject({ code: 0 });
  const set = "--set namespace.name=by-helm";
  const installed = run("helm", `install release ${chart} -n default ${set}`);
  expect(installed, installed.stderr).toMatchObject({ code: 0 });
  expect(run("kubectl", "get crd -o name").stdout.trim().split("\n")).toHaveLength(definitionCount());
  const changed = run("helm", `upgrade release ${chart} -n default ${set} --set replicaCount=1`);
  expect(changed, changed.stderr).toMatchObject({ code: 0 });
  const replicas = "jsonpath={.spec.replicas}";
  expect(run("kubectl", `get deployment agent-sandbox-controller -n by-helm -o ${replicas}`).stdout).toBe("1");
  expect(run("helm", "uninstall release -n default --wait=false")).toMatchObject({ code: 0 });
  expect(run("kubectl", "get clusterroles -l app.kubernetes.io/part-of=agent-sandbox -o name").stdout).toBe("");
});
