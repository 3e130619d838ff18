// The steps the cluster tests need: a real API server with its controllers, etcd, two releases of kubectl, helm, and a node: kubelet, containerd with
// its shims for runc and for gVisor, CNI plugins. The node's runc is Debian's, which the other tests have too (dev-steps.mjs).
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { cacheDir, rootDir, stateDir } from "./places.mjs";
import { contentKey, isProgram, makeDirectory, run } from "./step.mjs";

const clusterDir = path.join(rootDir, "test/cluster");
const kubernetes = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"];
const containerd = ["containerd", "ctr", "containerd-shim-runc-v2"];
const cniPlugins = ["main/ptp", "main/loopback", "ipam/host-local"];

/** The steps of the cluster tests, in order; the last one writes where the programs are, for the tests to read. */
export function clusterSteps() {
  const steps = allSteps();
  return [...steps, recordStep(steps)];
}

/** The steps of the other tests: they drive sandboxes with a real kubectl and need nothing else of Kubernetes; archives go to a real S3 server. */
export function kubectlSteps() {
  const steps = allSteps();
  return [
    ...steps.filter(({ title }) => title === "kubectl for tests" || title === "S3 server for tests"),
    recordStep(steps),
  ];
}

function allSteps() {
  const ofKubernetes = (name) => ({ name, package: `k8s.io/kubernetes/cmd/${name}` });
  return [
    buildStep("kubectl for tests", ".", [ofKubernetes("kubectl")], "-kubectl"),
    buildStep("Kubernetes for tests", ".", kubernetes.map(ofKubernetes)),
    buildStep("etcd for tests", "etcd", [{ name: "etcd", package: "go.etcd.io/etcd/server/v3" }]),
    buildStep("S3 server for tests", "versitygw", [
      { name: "versitygw", package: "github.com/versity/versitygw/cmd/versitygw" },
    ]),
    buildStep("helm for tests", "helm", [{ name: "helm", package: "helm.sh/helm/v3/cmd/helm" }]),
    buildStep("older kubectl for tests", "kubectl-old", [
      { name: "kubectl-old", package: "k8s.io/kubernetes/cmd/kubectl" },
    ]),
    buildStep(
      "containerd for tests",
      "containerd",
      containerd.map((name) => ({ name, package: `github.com/containerd/containerd/v2/cmd/${name}` })),
    ),
    buildStep(
      "CNI plugins for tests",
      "cni",
      cniPlugins.map((plugin) => ({
        name: path.basename(plugin),
        package: `github.com/containernetworking/plugins/plugins/${plugin}`,
      })),
    ),
    buildStep("pause for tests", ".", [{ name: "pause", package: "./pause" }], "-pause"),
    buildStep("gVisor's shim for tests", "gvisor-shim", [{ name: "containerd-shim-runsc-v1", package: "." }]),
  ];
}

function buildStep(title, module, programs, suffix = "") {
  const moduleDir = path.join(clusterDir, module);
  const own = programs.filter((program) => program.package.startsWith("."));
  const sources = ["go.mod", "go.sum", ...own.map((program) => path.join(program.package, "main.go"))];
  const key = contentKey(sources.map((name) => path.join(moduleDir, name)));
  const dir = path.join(cacheDir, "cluster", `${key}${suffix}`);
  const files = Object.fromEntries(programs.map(({ name }) => [name, path.join(dir, name)]));
  return {
    title,
    files,
    isDone: () => Object.values(files).every(isProgram),
    run: () =>
      makeDirectory(dir, (partial) => {
        const { go } = JSON.parse(readFileSync(path.join(stateDir, "setup.json"), "utf8"));
        for (const program of programs) {
          const args = [
            "build",
            "-trimpath",
            "-ldflags=-s -w",
            "-o",
            path.join(partial, program.name),
            program.package,
          ];
          const env = { CGO_ENABLED: "0", GOTOOLCHAIN: "local", GOFLAGS: "-buildvcs=false" };
          run(go, args, { cwd: moduleDir, env, needsNetwork: "Go modules" });
        }
      }),
  };
}

/** Lists what is there; a program that was not asked for yet is left out. */
function recordStep(steps) {
  const file = path.join(stateDir, "cluster.json");
  const record = () =>
    `${JSON.stringify(Object.assign({}, ...steps.filter((step) => step.isDone()).map((step) => step.files)))}\n`;
  return {
    title: "record of the cluster's programs",
    isDone: () => existsSync(file) && readFileSync(file, "utf8") === record(),
    run: () => {
      mkdirSync(stateDir, { recursive: true });
      writeFileSync(file, record());
    },
  };
}
