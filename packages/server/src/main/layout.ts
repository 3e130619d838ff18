import { createHash } from "node:crypto";
import path from "node:path";

/** Where everything of one engine lies; all of it follows from the data directory. */
export interface Layout {
  readonly dataDir: string;
  /** Six hex digits of the data directory's path: part of every name the engine gives to something on the host. */
  readonly instance: string;
  /** Sockets and process records: gone after a reboot, as they must be. */
  readonly runDir: string;
  readonly dbFile: string;
  readonly pkiDir: string;
  /** What belongs to the node's user; the one directory in which sandbox-host looks up a path that the node names. */
  readonly nodeDir: string;
  readonly imagesDir: string;
  /** One record per Pod, written by the node agent. */
  readonly sandboxesDir: string;
  readonly logsDir: string;
  readonly hostSocket: string;
  readonly nodeSocket: string;
  /** Written by the supervisor once everything answers; names the processes and addresses. */
  readonly recordFile: string;
}

/** The default data directory. */
export const defaultDataDir = "/var/lib/agent-sandbox";

/** Derives the layout of an engine from its data directory. */
export function layoutOf(dataDir: string): Layout {
  const absolute = path.resolve(dataDir);
  const instance = createHash("sha256").update(absolute).digest("hex").slice(0, 6);
  const runDir = path.join("/run/agent-sandbox", instance);
  const nodeDir = path.join(absolute, "engine/node");
  return {
    dataDir: absolute,
    instance,
    runDir,
    dbFile: path.join(absolute, "db/store.sqlite"),
    pkiDir: path.join(absolute, "pki"),
    nodeDir,
    imagesDir: path.join(nodeDir, "images"),
    sandboxesDir: path.join(nodeDir, "sandboxes"),
    logsDir: path.join(absolute, "logs"),
    hostSocket: path.join(runDir, "host.sock"),
    nodeSocket: path.join(runDir, "node/node.sock"),
    recordFile: path.join(runDir, "engine.json"),
  };
}
