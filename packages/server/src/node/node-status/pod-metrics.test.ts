import { expect, test } from "vitest";
import { otherEnd, parseLinkCounters } from "./link-counters.ts";
import { podMetricsOf } from "./pod-metrics.ts";
import type { UsageSample } from "./pod-usage.ts";

const table = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
as1:1000 10 0 2 0 0 0 0 5000 50 0 3 0 0 0 0
`;

test("parseLinkCounters: reads names with and without a space after them", () => {
  const links = parseLinkCounters(table);
  expect([...links.keys()]).toEqual(["lo", "as1"]);
  expect(links.get("as1")).toMatchObject({ receivedBytes: 1000, receivedDropped: 2, sentBytes: 5000, sentPackets: 50 });
});

test("podMetricsOf: a sandbox receives what the host's end of its link sends", () => {
  const counters = parseLinkCounters(table).get("as1") ?? expect.unreachable();
  const sample: UsageSample = {
    namespace: "default",
    pod: "a",
    uid: "1",
    containers: ["main"],
    atMs: 0,
    stats: {
      cpuUsageUsec: 1_500_000,
      memoryBytes: 10,
      workingSetBytes: 5,
      pids: 3,
      oomKills: 0,
      memoryRefused: 0,
      pidsRefused: 0,
      frozen: false,
    },
    network: otherEnd(counters),
    disks: [{ container: "main", sizeBytes: 64, usedBytes: 7 }],
    claims: [{ name: "data", sizeBytes: 32, usedBytes: 9 }],
  };
  const text = podMetricsOf([sample]);
  const pod = 'namespace="default",pod="a"';
  for (const line of [
    `container_cpu_usage_seconds_total{${pod}} 1.5`,
    `container_network_receive_bytes_total{interface="eth0",${pod}} 5000`,
    `container_network_transmit_bytes_total{interface="eth0",${pod}} 1000`,
    `container_fs_usage_bytes{container="main",${pod}} 7`,
    `kubelet_volume_stats_capacity_bytes{persistentvolumeclaim="data",${pod}} 32`,
  ])
    expect(text).toContain(`\n${line}\n`);
});
