import { readFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { startNode } from "./node-start.ts";
import { type Role, type RoleContext, runRole } from "./role.ts";
import { openRoleClient } from "./role-client.ts";

/** The node process of the one-machine engine. */
async function startOwnNode({ config, layout, logger }: RoleContext): Promise<Role & { readonly facts: object }> {
  const client = await openRoleClient(path.join(layout.pkiDir, "node.kubeconfig"));
  const read = (file: string): Promise<string> => readFile(path.join(layout.pkiDir, file), "utf8");
  return startNode({
    client,
    layout,
    logger,
    user: config.user,
    settings: {
      nodeName: config.nodeName,
      sandboxdPath: config.sandboxdPath,
      nodeAddress: config.kubeletListen.host,
      podCidr: config.podCidr,
      clusterDomain: config.clusterDomain,
      kubelet: {
        ...config.kubeletListen,
        certificate: await read("kubelet.crt"),
        key: await read("kubelet.key"),
        clientCa: await read("ca.crt"),
      },
      allowRunc: config.allowRunc,
      hostPathAllowList: config.hostPathAllowList,
      podsMax: 500,
      sandboxesAhead: config.sandboxesAhead,
      imageCollection: config.imageCollection,
      limits: config.limits,
      labels: { "kubernetes.io/hostname": os.hostname() },
    },
  });
}

await runRole("node", startOwnNode, { keepRoot: true });
