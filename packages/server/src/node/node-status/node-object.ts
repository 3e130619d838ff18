import type { Node, NodeCondition, NodeStatus } from "@agent-sandbox/api";
import { findCondition, formatTimestamp } from "@agent-sandbox/api";
import type { NodeConfig } from "../config.ts";
import type { HostInfo } from "../host/host.ts";
import { sandboxesMemoryBytes } from "../limits.ts";
import type { ProcessIds } from "./process-ids.ts";

/** What a node's status follows from. */
export interface NodeQuestion {
  readonly config: NodeConfig;
  readonly info: HostInfo;
  readonly architecture: string;
  readonly kubeletPort: number;
  readonly memoryAvailableBytes: number;
  readonly processIds: ProcessIds;
  readonly images: readonly { readonly names: readonly string[]; readonly sizeBytes: number }[];
  /** Records of the node itself that were set aside; the helper's are in `info`. */
  readonly badRecords: readonly string[];
  readonly old: NodeStatus | undefined;
  readonly nowMs: number;
}

/** Processor time that is kept for the machine itself. */
const reservedCpuMillis = 100;

/** Below these the node says that it is under pressure; the kubelet's eviction thresholds. */
const memoryPressureBytes = 100 * 2 ** 20;
const diskPressureShare = 0.1;

/** Sandboxes have limits of their own; when the whole machine has used this much, it takes no more of them. */
const processIdPressureShare = 0.9;

/** Images named in the status; the kubelet's bound. */
const imagesMax = 50;

/** The Node object to register; an existing one keeps what others wrote. */
export function newNode({ config }: Pick<NodeQuestion, "config">, architecture: string): Node {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name: config.nodeName,
      labels: {
        "kubernetes.io/hostname": config.nodeName,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "agent-sandbox.dev/node": "true",
        ...config.labels,
      },
    },
    spec: {
      podCIDR: config.podCidr,
      podCIDRs: [config.podCidr],
      ...(config.taints !== undefined && { taints: [...config.taints] }),
    },
  };
}

/** The whole status of the node. */
export function nodeStatus(question: NodeQuestion): NodeStatus {
  const { config, info, kubeletPort, architecture, images } = question;
  const capacity = {
    cpu: String(info.cpus),
    memory: String(info.memoryBytes),
    "ephemeral-storage": String(info.diskBytes),
    pods: String(config.podsMax),
  };
  return {
    capacity,
    allocatable: {
      ...capacity,
      cpu: `${Math.max(0, info.cpus * 1000 - reservedCpuMillis)}m`,
      memory: String(sandboxesMemoryBytes(config.limits, info.memoryBytes)),
      "ephemeral-storage": String(
        Math.max(0, info.diskBytes - Math.max(config.limits.reservedDiskBytes, info.diskBytes * diskPressureShare)),
      ),
    },
    addresses: [
      { type: "InternalIP", address: config.nodeAddress },
      { type: "Hostname", address: config.nodeName },
    ],
    daemonEndpoints: { kubeletEndpoint: { Port: kubeletPort } },
    nodeInfo: {
      machineID: info.instance,
      systemUUID: info.instance,
      bootID: info.instance,
      kernelVersion: info.kernel,
      osImage: "Linux",
      containerRuntimeVersion: `agent-sandbox://${info.version}`,
      kubeletVersion: `v${config.version}`,
      kubeProxyVersion: "",
      operatingSystem: "linux",
      architecture,
    },
    runtimeHandlers: info.runtimes
      .filter(({ available }) => available)
      .map(({ runtime }) => ({ name: runtime === "runsc" ? "gvisor" : runtime })),
    images: images.slice(0, imagesMax).map(({ names, sizeBytes }) => ({ names: [...names], sizeBytes })),
    conditions: nodeConditions(question),
  };
}

function nodeConditions(question: NodeQuestion): NodeCondition[] {
  const { info, config, memoryAvailableBytes, processIds, old, nowMs } = question;
  const now = formatTimestamp(nowMs);
  const condition = (type: string, isTrue: boolean, reason: string, message: string): NodeCondition => {
    const before = findCondition(old?.conditions, type);
    const status = isTrue ? "True" : "False";
    const lastTransitionTime =
      before?.status === status && before.lastTransitionTime !== undefined ? before.lastTransitionTime : now;
    return { type, status, reason, message, lastHeartbeatTime: now, lastTransitionTime };
  };
  const lacksMemory = memoryAvailableBytes < memoryPressureBytes;
  const lacksDisk = info.diskFreeBytes < Math.max(config.limits.reservedDiskBytes, info.diskBytes * diskPressureShare);
  const lacksProcessIds = processIds.used > processIds.max * processIdPressureShare;
  const gvisor = info.runtimes.find(({ runtime }) => runtime === "runsc");
  const runtimeOk = info.runtimes.some(({ available }) => available);
  const badRecords = [...info.badRecords, ...question.badRecords];
  const unenforced = ["cpu", "memory", "pids"].filter((limit) => !info.cgroupLimits.some((known) => known === limit));
  return [
    condition(
      "MemoryPressure",
      lacksMemory,
      lacksMemory ? "KubeletHasInsufficientMemory" : "KubeletHasSufficientMemory",
      lacksMemory ? "memory is short on this node" : "memory is sufficient",
    ),
    condition(
      "DiskPressure",
      lacksDisk,
      lacksDisk ? "KubeletHasDiskPressure" : "KubeletHasNoDiskPressure",
      lacksDisk ? `the file system of ${config.dataDir} is nearly full` : "disk space is sufficient",
    ),
    condition(
      "PIDPressure",
      lacksProcessIds,
      lacksProcessIds ? "KubeletHasInsufficientPID" : "KubeletHasSufficientPID",
      lacksProcessIds ? "process ids are short on this node" : "process ids are sufficient",
    ),
    condition(
      "LimitsEnforced",
      unenforced.length === 0,
      unenforced.length === 0 ? "AllLimits" : "LimitsMissing",
      unenforced.length === 0
        ? "cpu, memory and process limits are enforced"
        : `this machine cannot enforce: ${unenforced.join(", ")}`,
    ),
    condition(
      "RecordsReadable",
      badRecords.length === 0,
      badRecords.length === 0 ? "AllRecords" : "RecordsSetAside",
      badRecords.length === 0
        ? "every record of this node can be read"
        : `set aside in host/bad and engine/node/bad of the data directory: ${namesOf(badRecords)}`,
    ),
    condition(
      "Ready",
      runtimeOk,
      runtimeOk ? "KubeletReady" : "RuntimeMissing",
      runtimeOk ? "the node is ready" : (gvisor?.reason ?? "no runtime is installed; run agent-sandbox doctor --fix"),
    ),
  ];
}

/** Names that a condition's message has room for. */
const badNamesMax = 5;

function namesOf(names: readonly string[]): string {
  const rest = names.length - badNamesMax;
  return `${names.slice(0, badNamesMax).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
}
