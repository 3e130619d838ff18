import os from "node:os";
import { openArchive } from "./archive-place.ts";
import { startNode } from "./node-start.ts";
import { type Role, type RoleContext, runRole } from "./role.ts";
import { openRoleClient } from "./role-client.ts";

/** The node process of the one-machine engine. */
async function startOwnNode({ config, layout, logger, user }: RoleContext): Promise<Role> {
  const { client, credentials } = openRoleClient(layout.roles.node.credentialsFile);
  return startNode({
    client,
    layout,
    logger,
    user,
    sandboxd: config.programs.sandboxd,
    ...(config.archive !== undefined && { archive: openArchive(config.archive) }),
    settings: {
      nodeName: config.nodeName,
      nodeAddress: config.kubeletListen.host,
      podCidr: config.podCidr,
      clusterDomain: config.clusterDomain,
      kubelet: {
        ...config.kubeletListen,
        certificate: credentials.serving.certificatePem,
        key: credentials.serving.privateKeyPem,
        clientCa: credentials.caBundlePem,
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
