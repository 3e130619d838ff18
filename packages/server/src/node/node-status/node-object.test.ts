import { expect, test } from "vitest";
import type { NodeConfig } from "../config.ts";
import { FakeHost } from "../host/fake-host.ts";
import { collectionDefaults } from "../images/plan-collection.ts";
import { type NodeQuestion, nodeStatus } from "./node-object.ts";
import { readProcessIds, tasksOf } from "./process-ids.ts";

const config: NodeConfig = {
  nodeName: "n",
  dataDir: "/data",
  hostDir: "/host",
  settingsDir: "/data",
  instance: "000000",
  sandboxdPath: "/data/sandboxd",
  nodeAddress: "127.0.0.1",
  podCidr: "10.200.0.0/16",
  clusterDomain: "cluster.local",
  dns: { port: 53, resolvers: [], searches: [] },
  kubelet: { host: "127.0.0.1", port: 0, certificate: "", key: "" },
  allowRunc: false,
  sandboxesAhead: 0,
  hostPathAllowList: [],
  podsMax: 1,
  imageCollection: collectionDefaults,
  writableBytesDefault: 1,
  version: "0",
  labels: {},
};

async function question(): Promise<NodeQuestion> {
  const info = { ...(await new FakeHost().info()), diskBytes: 100, diskFreeBytes: 50 };
  return {
    config,
    info,
    architecture: "amd64",
    kubeletPort: 1,
    memoryAvailableBytes: 2 ** 30,
    processIds: { used: 100, max: 1000 },
    images: [],
    badRecords: [],
    old: undefined,
    nowMs: 0,
  };
}

async function conditions(change: Partial<NodeQuestion>): Promise<Readonly<Record<string, string>>> {
  const status = nodeStatus({ ...(await question()), ...change });
  return Object.fromEntries((status.conditions ?? []).map(({ type, status: is }) => [type, is]));
}

test("nodeStatus: a healthy machine is ready and under no pressure", async () => {
  expect(await conditions({})).toMatchObject({
    Ready: "True",
    DiskPressure: "False",
    MemoryPressure: "False",
    PIDPressure: "False",
  });
});

test("nodeStatus: memory, disk and process ids each have a pressure of their own", async () => {
  const info = { ...(await new FakeHost().info()), diskBytes: 100, diskFreeBytes: 5 };
  expect(await conditions({ info })).toMatchObject({ DiskPressure: "True", PIDPressure: "False" });
  expect(await conditions({ memoryAvailableBytes: 2 ** 20 })).toMatchObject({ MemoryPressure: "True" });
  expect(await conditions({ processIds: { used: 950, max: 1000 } })).toMatchObject({ PIDPressure: "True" });
});

test("nodeStatus: records that were set aside are named", async () => {
  const info = { ...(await new FakeHost().info()), badRecords: ["containers.a.record.json.bad-1"] };
  expect(await conditions({})).toMatchObject({ RecordsReadable: "True" });
  expect(await conditions({ info })).toMatchObject({ RecordsReadable: "False" });
  const badRecords = Array.from({ length: 7 }, (_, n) => `sandboxes.${n}.record.json.bad-2`);
  const { conditions: list } = nodeStatus({ ...(await question()), info, badRecords });
  expect(list?.find(({ type }) => type === "RecordsReadable")?.message).toMatch(
    /host\/bad.*: containers\.a\.record\.json\.bad-1, sandboxes\.0.* and 3 more$/,
  );
});

test("readProcessIds: counts threads of this machine against its limit", async () => {
  expect(tasksOf("0.20 0.18 0.12 1/80 11206\n")).toBe(80);
  const { used, max } = await readProcessIds();
  expect(used).toBeGreaterThan(1);
  expect(max).toBeGreaterThan(used);
});
