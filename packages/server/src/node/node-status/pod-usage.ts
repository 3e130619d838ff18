import type { CgroupStats } from "../host/cgroup.ts";
import type { LinkCounters } from "./link-counters.ts";
import type { MachineUsage } from "./machine-usage.ts";

/** Use of one pod at one moment. */
export interface UsageSample {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  readonly containers: readonly string[];
  readonly atMs: number;
  readonly stats: CgroupStats;
  /** As the sandbox sees its link; absent: it has none. */
  readonly network?: LinkCounters;
  /** Writable layers, by container. */
  readonly disks: readonly (Fill & { readonly container: string })[];
  /** Volumes, by the name of their claim. */
  readonly claims: readonly (Fill & { readonly name: string })[];
}

/** How much of a file system is in use. */
export interface Fill {
  readonly sizeBytes: number;
  readonly usedBytes: number;
}

/** The kubelet's `/stats/summary`, as far as metrics servers read it. */
export function summaryOf(nodeName: string, samples: readonly UsageSample[], machine: MachineUsage): unknown {
  const time = (atMs: number): string => new Date(atMs).toISOString();
  return {
    node: {
      nodeName,
      cpu: { time: time(machine.atMs), usageCoreNanoSeconds: Math.round(machine.cpuSeconds * 1e9) },
      memory: { time: time(machine.atMs), workingSetBytes: machine.memoryBytes },
    },
    pods: samples.map(({ namespace, pod, uid, containers, atMs, stats, network, disks, claims }) => ({
      podRef: { name: pod, namespace, uid },
      cpu: { time: time(atMs), usageCoreNanoSeconds: stats.cpuUsageUsec * 1000 },
      memory: { time: time(atMs), usageBytes: stats.memoryBytes, workingSetBytes: stats.workingSetBytes },
      process_stats: { process_count: stats.pids },
      ...(network !== undefined && {
        network: { time: time(atMs), name: "eth0", rxBytes: network.receivedBytes, txBytes: network.sentBytes },
      }),
      volume: claims.map(({ name, sizeBytes, usedBytes }) => ({
        time: time(atMs),
        name,
        pvcRef: { name, namespace },
        capacityBytes: sizeBytes,
        usedBytes,
        availableBytes: sizeBytes - usedBytes,
      })),
      // A pod is one cgroup here; its first container stands for all of it, the others are not told apart.
      containers: containers.map((name, index) => ({
        name,
        cpu: { time: time(atMs), usageCoreNanoSeconds: index === 0 ? stats.cpuUsageUsec * 1000 : 0 },
        memory: {
          time: time(atMs),
          usageBytes: index === 0 ? stats.memoryBytes : 0,
          workingSetBytes: index === 0 ? stats.workingSetBytes : 0,
        },
        ...rootfsOf(disks, name, time(atMs)),
      })),
    })),
  };
}

function rootfsOf(disks: UsageSample["disks"], container: string, time: string): { rootfs?: unknown } {
  const disk = disks.find((candidate) => candidate.container === container);
  if (disk === undefined) return {};
  const { sizeBytes, usedBytes } = disk;
  return { rootfs: { time, capacityBytes: sizeBytes, usedBytes, availableBytes: sizeBytes - usedBytes } };
}

/** The kubelet's `/metrics/resource`, which metrics-server reads. */
export function resourceMetricsOf(samples: readonly UsageSample[], machine: MachineUsage): string {
  const lines: string[] = [
    "# HELP node_cpu_usage_seconds_total Cumulative cpu time consumed by the node in core-seconds",
    "# TYPE node_cpu_usage_seconds_total counter",
    `node_cpu_usage_seconds_total ${machine.cpuSeconds} ${Math.round(machine.atMs)}`,
    "# HELP node_memory_working_set_bytes Current working set of the node in bytes",
    "# TYPE node_memory_working_set_bytes gauge",
    `node_memory_working_set_bytes ${machine.memoryBytes} ${Math.round(machine.atMs)}`,
  ];
  const metric = (name: string, type: string, help: string, valueOf: (sample: UsageSample) => number): void => {
    lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
    for (const sample of samples) {
      const labels = `namespace="${sample.namespace}",pod="${sample.pod}"`;
      lines.push(`${name}{${labels}} ${valueOf(sample)} ${Math.round(sample.atMs)}`);
    }
  };
  metric(
    "pod_cpu_usage_seconds_total",
    "counter",
    "Cumulative cpu time consumed by the pod in core-seconds",
    ({ stats }) => stats.cpuUsageUsec / 1e6,
  );
  metric(
    "pod_memory_working_set_bytes",
    "gauge",
    "Current working set of the pod in bytes",
    ({ stats }) => stats.workingSetBytes,
  );
  const [first] = samples;
  if (first !== undefined) {
    lines.push("# TYPE container_cpu_usage_seconds_total counter", "# TYPE container_memory_working_set_bytes gauge");
    for (const { namespace, pod, containers, stats, atMs } of samples) {
      const [container = ""] = containers;
      const labels = `container="${container}",namespace="${namespace}",pod="${pod}"`;
      lines.push(`container_cpu_usage_seconds_total{${labels}} ${stats.cpuUsageUsec / 1e6} ${Math.round(atMs)}`);
      lines.push(`container_memory_working_set_bytes{${labels}} ${stats.workingSetBytes} ${Math.round(atMs)}`);
    }
  }
  return `${lines.join("\n")}\n`;
}
