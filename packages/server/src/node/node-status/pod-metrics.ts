import type { UsageSample } from "./pod-usage.ts";

interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge";
  readonly help: string;
  /** Labels besides namespace and pod, and the value; none: nothing is known. */
  readonly values: (sample: UsageSample) => readonly (readonly [Readonly<Record<string, string>>, number])[];
}

type NetworkField = keyof NonNullable<UsageSample["network"]>;

function network(name: string, help: string, field: NetworkField): Metric {
  const values: Metric["values"] = ({ network: counters }) =>
    counters === undefined ? [] : [[{ interface: "eth0" }, counters[field]]];
  return { name: `container_network_${name}_total`, type: "counter", help, values };
}

/** The names are those of the kubelet's own `/metrics/cadvisor` and `/metrics`, so that dashboards made for them show sandboxes too. */
const metrics: readonly Metric[] = [
  {
    name: "container_cpu_usage_seconds_total",
    type: "counter",
    help: "Cumulative cpu time consumed in seconds.",
    values: ({ stats }) => [[{}, stats.cpuUsageUsec / 1e6]],
  },
  {
    name: "container_memory_usage_bytes",
    type: "gauge",
    help: "Current memory usage in bytes, including all memory regardless of when it was accessed.",
    values: ({ stats }) => [[{}, stats.memoryBytes]],
  },
  {
    name: "container_memory_working_set_bytes",
    type: "gauge",
    help: "Current working set in bytes.",
    values: ({ stats }) => [[{}, stats.workingSetBytes]],
  },
  {
    name: "container_oom_events_total",
    type: "counter",
    help: "Count of out of memory events observed for the container.",
    values: ({ stats }) => [[{}, stats.oomKills]],
  },
  {
    name: "container_threads",
    type: "gauge",
    help: "Number of host tasks, those of the runtime included.",
    values: ({ stats }) => [[{}, stats.pids]],
  },
  network("receive_bytes", "Cumulative count of bytes received.", "receivedBytes"),
  network("receive_packets", "Cumulative count of packets received.", "receivedPackets"),
  network("receive_packets_dropped", "Cumulative count of packets dropped while receiving.", "receivedDropped"),
  network("transmit_bytes", "Cumulative count of bytes transmitted.", "sentBytes"),
  network("transmit_packets", "Cumulative count of packets transmitted.", "sentPackets"),
  network("transmit_packets_dropped", "Cumulative count of packets dropped while transmitting.", "sentDropped"),
  {
    name: "container_fs_usage_bytes",
    type: "gauge",
    help: "Number of bytes that are consumed by the container on its writable layer.",
    values: ({ disks }) => disks.map(({ container, usedBytes }) => [{ container }, usedBytes]),
  },
  {
    name: "container_fs_limit_bytes",
    type: "gauge",
    help: "Number of bytes that can be consumed by the container on its writable layer.",
    values: ({ disks }) => disks.map(({ container, sizeBytes }) => [{ container }, sizeBytes]),
  },
  {
    name: "kubelet_volume_stats_used_bytes",
    type: "gauge",
    help: "Number of used bytes in the volume.",
    values: ({ claims }) => claims.map(({ name, usedBytes }) => [{ persistentvolumeclaim: name }, usedBytes]),
  },
  {
    name: "kubelet_volume_stats_capacity_bytes",
    type: "gauge",
    help: "Capacity in bytes of the volume.",
    values: ({ claims }) => claims.map(({ name, sizeBytes }) => [{ persistentvolumeclaim: name }, sizeBytes]),
  },
];

/** Use of every pod in Prometheus form. Labels are the pod's names: their number is bounded by the pods of the node. */
export function podMetricsOf(samples: readonly UsageSample[]): string {
  const lines: string[] = [];
  for (const { name, type, help, values } of metrics) {
    lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
    for (const sample of samples) {
      for (const [labels, value] of values(sample)) {
        const all = { ...labels, namespace: sample.namespace, pod: sample.pod };
        const text = Object.entries(all).map(([label, word]) => `${label}="${word}"`);
        lines.push(`${name}{${text.join(",")}} ${value}`);
      }
    }
  }
  return `${lines.join("\n")}\n`;
}
