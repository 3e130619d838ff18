import path from "node:path";
import { writeRecord } from "../durable/record-file.ts";
import { RecordShelf } from "../durable/record-shelf.ts";
import { createLogger } from "../telemetry/logger.ts";

/** The file of a data directory that names its node. */
export const nodeFile = "node.json";

/**
 * The name of the engine's node: the one it had before, or `fresh`. Pods are bound to it, so it goes with the data and not with the machine: under
 * another host name, or restored on another machine, the node still is the one that its Pods name.
 */
export async function ensureNodeName(dataDir: string, fresh: string): Promise<string> {
  const kept = await readNodeName(dataDir);
  if (kept !== undefined) return kept;
  await writeRecord(path.join(dataDir, nodeFile), nodeText(fresh), { mode: 0o644 });
  return fresh;
}

/** The name that a data directory has for its node, if it has one. */
export async function readNodeName(dataDir: string): Promise<string | undefined> {
  const logger = createLogger({ component: "supervisor" });
  const shelf = new RecordShelf(dataDir, (file, error) => {
    logger.error({ err: error, file }, "the node's name cannot be read and was set aside; the host's name is taken");
  });
  return shelf.read(path.join(dataDir, nodeFile), parseNodeName);
}

/** What the file says. */
export function nodeText(nodeName: string): string {
  return `${JSON.stringify({ nodeName })}\n`;
}

function parseNodeName(text: string): string {
  const { nodeName } = JSON.parse(text) as { readonly nodeName?: unknown };
  if (typeof nodeName !== "string" || !/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(nodeName))
    throw new Error(`${JSON.stringify(nodeName)} is no name of a node`);
  return nodeName;
}
