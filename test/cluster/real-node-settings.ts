import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { readDevDir, readSetup } from "../../scripts/checkout.ts";
import { programPath } from "./programs.ts";

/** Images of the real node; no registry has them. */
export const realImages = { pause: "agent-sandbox.test/pause:1", shell: "agent-sandbox.test/shell:1" } as const;

/** The runtime of its containerd that a Pod gets by a RuntimeClass of this name; a Pod without a class gets runc. */
export const gvisorClass = "gvisor";

/** Where containerd answers inside the node's namespaces: where it does on most nodes. */
export const containerdSocket = "/run/containerd/containerd.sock";

/** The node's address: one of a range that documents use, on its own loopback. A kubelet takes none of 127.0.0.0/8. */
export const nodeAddress = "192.0.2.10";

/** Addresses of its Pods, as the CNI plugin hands them out. */
export const podCidr = "10.244.0.0/24";

/** What the settings are made for. */
export interface RealNodePlace {
  /** Everything that the node writes is in here, but for what lies in /run. */
  readonly dir: string;
  /** The cgroup that holds its Pods, in every hierarchy. */
  readonly cgroup: string;
  readonly caFile: string;
}

/** The files that the node's programs are started with. */
export interface RealNodeSettings {
  readonly containerd: string;
  readonly kubelet: string;
}

/** Writes all settings below the node's directory. */
export function writeSettings(place: RealNodePlace): RealNodeSettings {
  const file = (name: string, text: string): string => {
    const target = path.join(place.dir, "settings", name);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, text);
    return target;
  };
  const runsc = file("runsc.toml", runscSettings());
  file("cni/10-pods.conflist", JSON.stringify(cniSettings(place)));
  // Nothing resolves names here; the kubelet copies the file into every Pod.
  file("resolv.conf", "nameserver 127.0.0.1\n");
  return {
    containerd: file("containerd.toml", containerdSettings(place, runsc)),
    kubelet: file("kubelet.json", JSON.stringify(kubeletSettings(place))),
  };
}

/** The shim's own file: which runsc, and with which flags. */
function runscSettings(): string {
  return `binary_name = "${readSetup().runsc}"\nroot = "/run/runsc"\n[runsc_config]\n  platform = "systrap"\n`;
}

function cniSettings({ dir }: RealNodePlace): object {
  const ipam = {
    type: "host-local",
    dataDir: path.join(dir, "addresses"),
    ranges: [[{ subnet: podCidr }]],
    routes: [{ dst: "0.0.0.0/0" }],
  };
  return { cniVersion: "1.0.0", name: "pods", plugins: [{ type: "ptp", ipam }] };
}

/** Lowering a process's `oom_score_adj` needs CAP_SYS_RESOURCE, which this kind of machine does not give to root: containerd keeps to what it may. */
function containerdSettings({ dir }: RealNodePlace, runsc: string): string {
  const runtime = "plugins.'io.containerd.cri.v1.runtime'";
  return `version = 3
root = "${path.join(dir, "containerd")}"
state = "/run/containerd"
[grpc]
  address = "${containerdSocket}"
[plugins.'io.containerd.internal.v1.opt']
  path = "${path.join(dir, "opt")}"
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "${realImages.pause}"
[${runtime}]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [${runtime}.cni]
    bin_dirs = ["${path.join(dir, "plugins")}"]
    conf_dir = "${path.join(dir, "settings/cni")}"
  [${runtime}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [${runtime}.containerd.runtimes.runc.options]
      BinaryName = "${path.join(readDevDir("servers"), "usr/sbin/runc")}"
  [${runtime}.containerd.runtimes.${gvisorClass}]
    runtime_type = "io.containerd.runsc.v1"
    [${runtime}.containerd.runtimes.${gvisorClass}.options]
      TypeUrl = "io.containerd.runsc.v1.options"
      ConfigPath = "${runsc}"
`;
}

function kubeletSettings({ dir, cgroup, caFile }: RealNodePlace): object {
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: caFile } },
    authorization: { mode: "Webhook" },
    containerRuntimeEndpoint: `unix://${containerdSocket}`,
    // This kind of machine has the first version of cgroups, and no systemd.
    failCgroupV1: false,
    cgroupDriver: "cgroupfs",
    cgroupRoot: `/${cgroup}`,
    failSwapOn: false,
    // Settings of the kernel are the machine's, not the test's: see kernelSettings.
    protectKernelDefaults: true,
    makeIPTablesUtilChains: false,
    // Room on the machine's disk is not this test's concern.
    evictionHard: { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    imageGCHighThresholdPercent: 100,
    podLogsDir: path.join(dir, "logs"),
    volumePluginDir: path.join(dir, "volume-plugins"),
    resolvConf: path.join(dir, "settings/resolv.conf"),
    // The defaults look at Pods and report every ten seconds, which is what most of a test's time would be.
    nodeStatusUpdateFrequency: "2s",
    syncFrequency: "10s",
  };
}

/** What a kubelet wants the machine's kernel to be set to; these stand in place of the machine's own values inside the node's namespaces, so that it changes nothing. */
export const kernelSettings: Readonly<Record<string, number>> = {
  "vm/overcommit_memory": 1,
  "vm/panic_on_oom": 0,
  "kernel/panic": 10,
  "kernel/panic_on_oops": 1,
  "kernel/keys/root_maxkeys": 1_000_000,
  "kernel/keys/root_maxbytes": 25_000_000,
};

/** The directories whose programs containerd finds by name: its shims. */
export function shimPath(): string {
  const shims = ["containerd-shim-runc-v2", "containerd-shim-runsc-v1"] as const;
  return shims.map((name) => path.dirname(programPath(name))).join(":");
}
