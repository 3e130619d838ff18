import { isAlive, type ProcessIdentity } from "@agent-sandbox/kube/engine-record";
import { RecordShelf } from "../durable/record-shelf.ts";
import { HostClient } from "../node/host/host-client.ts";
import { savedDirectories } from "../node/saved-directories.ts";
import { EngineError } from "./engine-error.ts";
import { EngineLock, otherHolder, settledRecord } from "./engine-lock.ts";
import { readEngineRecord } from "./engine-record.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { withLoneHelper } from "./lone-helper.ts";
import { isOfOlderVersion, olderVersion, removeOlderVersion } from "./older-version.ts";
import { removeTree } from "./remove-tree.ts";
import { clearSwitchOrder, readSwitchOrder, switchEndLimitMs } from "./switch-order.ts";

/** Longer than every role's own grace period together. */
const stopTimeoutMs = 40_000;

/** What `down` did. */
export interface DownReport {
  readonly wasRunning: boolean;
  /** What was removed from the host, for example `container`, `slot`, `mount`. */
  readonly removed: number;
}

/**
 * Stops the engine and its sandboxes; what sandboxes wrote stays, and they start again with the next `up`. With `purge`
 * nothing of the instance is left on the machine, its data included.
 */
export async function down(dataDir: string, { purge }: { readonly purge: boolean }): Promise<DownReport> {
  if (process.getuid?.() !== 0)
    throw new EngineError("stopping the engine needs root; run it again as root", { code: "denied" });
  const layout = layoutOf(dataDir);
  if (isOfOlderVersion(layout)) {
    if (!purge) throw olderVersion(layout);
    await removeOlderVersion(layout);
  }
  const running = await findEngine(layout);
  if (running !== undefined) await stopProcess(running);
  using _lock = await EngineLock.take(layout);
  // Of a supervisor that was killed while it became another version; its guard waits for the lock to start the one before.
  await clearSwitchOrder(layout);
  const removed = await sweep(layout, purge);
  if (purge) {
    await removeTree(layout.dataDir);
    await removeTree(layout.runDir);
  }
  return { wasRunning: running !== undefined, removed };
}

/**
 * An engine that is starting has no record yet; it is known by what it announced. One that becomes another version is waited for: a signal before
 * the other version listens would be lost with the process image.
 */
async function findEngine(layout: Layout): Promise<ProcessIdentity | undefined> {
  const isSwitching = readSwitchOrder(layout) !== undefined;
  const record = isSwitching ? await settledRecord(layout, switchEndLimitMs) : readEngineRecord(layout);
  return record?.supervisor ?? otherHolder(layout);
}

async function stopProcess(identity: ProcessIdentity): Promise<void> {
  process.kill(identity.pid, "SIGTERM");
  const deadlineMs = performance.now() + stopTimeoutMs;
  while (isAlive(identity)) {
    if (performance.now() > deadlineMs)
      throw new EngineError(`the engine (pid ${identity.pid}) did not stop within ${stopTimeoutMs / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Starts the privileged helper once more, alone, to remove what the instance made on the host. */
async function sweep(layout: Layout, purge: boolean): Promise<number> {
  return withLoneHelper(layout, "down", async (socketPath) => {
    const host = new HostClient({ socketPath });
    const keep = purge ? { writableLayers: [], volumes: [], saved: [], emptyDirs: [] } : await sleeping(layout, host);
    const report = await host.sweep({
      containers: [],
      rootfs: [],
      files: [],
      slots: [],
      cgroups: [],
      network: false,
      ...keep,
    });
    await host.close();
    if (report.failed.length > 0) {
      const failures = report.failed.map(({ kind, name, message }) => `${kind} ${name}: ${message}`).join("; ");
      throw new EngineError(`the engine is stopped, but not everything could be removed: ${failures}`);
    }
    return report.removed.length;
  });
}

/** What sandboxes that sleep go on from with the next `up`. */
async function sleeping(
  layout: Layout,
  host: HostClient,
): Promise<Pick<Parameters<HostClient["sweep"]>[0], "writableLayers" | "volumes" | "saved" | "emptyDirs">> {
  const nodeDir = layout.roles.node.dataDir;
  const saved = (await host.listSaved()).map(({ id }) => id);
  // What cannot be read is left where it is, for the agent that reads it next to say so.
  const shelf = new RecordShelf(nodeDir, () => undefined);
  return {
    writableLayers: (await host.listWritableLayers()).map(({ key }) => key),
    volumes: [],
    saved,
    emptyDirs: await savedDirectories(nodeDir, shelf, new Set(saved)),
  };
}
