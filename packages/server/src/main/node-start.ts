import { readFile } from "node:fs/promises";
import path from "node:path";
import { type Client, systemClock } from "@agent-sandbox/kube";
import { startNodeAgent } from "../node/agent.ts";
import type { ArchiveStore } from "../node/archive/archive-store.ts";
import { openNodeArchive } from "../node/archive/node-archive.ts";
import type { NodeConfig } from "../node/config.ts";
import { HostClient } from "../node/host/host-client.ts";
import type { Logger } from "../telemetry/logger.ts";
import { createMetricsRegistry } from "../telemetry/metrics.ts";
import { formatAddress } from "./engine-config.ts";
import { keepProgram } from "./kept-program.ts";
import type { Layout } from "./layout.ts";
import type { Role } from "./role.ts";
import { dropPrivileges, type RoleUser } from "./role-user.ts";
import { readVersion } from "./version.ts";

/** What differs between the node of the one-machine engine and a node of a cluster. */
export interface NodeStart {
  readonly client: Client;
  readonly layout: Layout;
  readonly logger: Logger;
  readonly user: RoleUser;
  /** The program that is put into sandboxes; perhaps in a place that only root can read. */
  readonly sandboxd: string;
  /** Opened while the process was root: its credentials are a file of root's. */
  readonly archive?: ArchiveStore;
  readonly settings: Omit<
    NodeConfig,
    "dataDir" | "hostDir" | "settingsDir" | "sandboxdPath" | "instance" | "dns" | "version"
  >;
}

/** Starts the node agent: it binds the DNS port of its gateway as root, then gives root up. */
export async function startNode(start: NodeStart): Promise<Role> {
  const { client, layout, logger, user, sandboxd, archive, settings } = start;
  // As root and in a directory of root's: a node that was taken over must not choose what runs in the next sandbox.
  const sandboxdPath = await keepProgram(sandboxd, path.join(layout.dataDir, "bin"));
  const host = new HostClient({ socketPath: layout.hostSocket });
  const agent = await startNodeAgent({
    client,
    host,
    clock: systemClock,
    logger,
    metrics: createMetricsRegistry({ processMetrics: true }),
    ...(archive !== undefined && { archive: (context) => openNodeArchive(context, archive) }),
    adminSocket: layout.nodeSocket,
    onBound: () => dropPrivileges(user),
    config: {
      ...settings,
      dataDir: layout.roles.node.dataDir,
      hostDir: layout.hostDir,
      settingsDir: layout.dataDir,
      sandboxdPath,
      instance: layout.instance,
      dns: { port: 53, ...(await machineResolvers()) },
      version: readVersion(),
    },
  });
  return {
    facts: { kubeletAddress: formatAddress({ host: settings.kubelet.host, port: agent.kubeletPort }) },
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
