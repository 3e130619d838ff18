import type { Pod } from "@agent-sandbox/api";
import { readLogs } from "../../packages/server/src/node/logs/read-logs.ts";
import { containerLog } from "../../packages/server/src/node/pods/container-log.ts";
import { PodRecordStore } from "../../packages/server/src/node/pods/pod-record-store.ts";
import type { NodeWorld } from "./node-world.ts";

/** The whole log of one run of a container; `root` is where the mounts of the host are seen, for one in a namespace of its own. */
export async function readPodLog(
  world: NodeWorld,
  pod: Pod,
  container: string,
  { attempt = 0, root = "" } = {},
): Promise<string> {
  const records = new PodRecordStore(`${world.dataDir}/sandboxes`);
  const { path, format } = containerLog({ config: world.config, records }, pod, { container, attempt });
  const chunks: Buffer[] = [];
  const options = { follow: false, timestamps: false, format };
  for await (const chunk of readLogs({
    path: `${root}${path}`,
    options,
    isLive: () => false,
    signal: new AbortController().signal,
  }))
    chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}
