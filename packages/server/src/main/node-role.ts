import { readFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { systemClock } from "@agent-sandbox/kube";
import { startNodeAgent } from "../node/agent.ts";
import { HostClient } from "../node/host/host-client.ts";
import { createMetricsRegistry } from "../telemetry/metrics.ts";
import { dropPrivileges } from "./engine-user.ts";
import { type Role, type RoleContext, runRole } from "./role.ts";
import { openRoleClient } from "./role-client.ts";
import { readVersion } from "./version.ts";

const gibibyte = 1024 ** 3;

/** The node process: it binds the DNS port of its gateway as root, then gives root up. */
async function startNode({ config, layout, logger }: RoleContext): Promise<Role> {
  const client = await openRoleClient(path.join(layout.pkiDir, "node.kubeconfig"));
  const host = new HostClient({ socketPath: layout.hostSocket });
  const read = (file: string): Promise<string> => readFile(path.join(layout.pkiDir, file), "utf8");
  const agent = await startNodeAgent({
    client,
    host,
    clock: systemClock,
    logger,
    metrics: createMetricsRegistry({ processMetrics: true }),
    adminSocket: layout.nodeSocket,
    onBound: () => dropPrivileges(config.user),
    config: {
      nodeName: config.nodeName,
      dataDir: layout.dataDir,
      instance: layout.instance,
      sandboxdPath: config.sandboxdPath,
      nodeAddress: config.kubeletListen.host,
      podCidr: config.podCidr,
      clusterDomain: config.clusterDomain,
      dns: { port: 53, ...(await machineResolvers()) },
      kubelet: {
        ...config.kubeletListen,
        certificate: await read("kubelet.crt"),
        key: await read("kubelet.key"),
        clientCa: await read("ca.crt"),
      },
      allowRunc: config.allowRunc,
      hostPathAllowList: config.hostPathAllowList,
      podsMax: 500,
      writableBytesDefault: 10 * gibibyte,
      version: readVersion(),
      labels: { "kubernetes.io/hostname": os.hostname() },
    },
  });
  return {
    stop: async () => {
      await agent.stop();
      await host.close();
      await client.transport.close();
    },
  };
}

/** The machine's own resolvers and search list, which queries for outside names go to. */
async function machineResolvers(): Promise<{ resolvers: string[]; searches: string[] }> {
  const text = await readFile("/etc/resolv.conf", "utf8").catch(() => "");
  const words = text.split("\n").map((line) => line.trim().split(/\s+/));
  return {
    resolvers: words.flatMap(([keyword, address]) =>
      keyword === "nameserver" && address !== undefined ? [address] : [],
    ),
    searches: words.flatMap(([keyword, ...domains]) => (keyword === "search" ? domains : [])),
  };
}

await runRole("node", startNode, { keepRoot: true });
