import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { loopsBelow, processTable } from "./footprint.ts";
import type { RealEngine } from "./real-engine.ts";

/** What the machine has of running sandboxes; a sandbox that came and went leaves it as it was. */
export function holdings(engine: RealEngine): Record<string, number> {
  const { dataDir, hostDir, nodeDir, instance, place } = engine;
  const entries = (dir: string): number => (existsSync(dir) ? readdirSync(dir).length : 0);
  const below = (dir: string): number => entries(path.join(hostDir, dir));
  const running = (dir: string): number =>
    entries(path.join(`/proc/${place.pid}/root/run/agent-sandbox`, instance, dir));
  const cgroup = path.join("/sys/fs/cgroup/memory", `agent-sandbox-${instance}`);
  const links = readFileSync(`/proc/${place.pid}/net/dev`, "utf8").split("\n");
  return {
    processes: processTable().filter(({ command }) => command.startsWith("runsc") && command.includes(dataDir)).length,
    mounts: mountPoints(engine).filter((point) => point.startsWith(dataDir)).length,
    loops: loopsBelow(dataDir).length,
    containers: below("containers"),
    waiting: waitingSandboxes(engine).length,
    roots: below("rootfs"),
    writable: below("writable/ephemeral"),
    files: below("files"),
    logs: below("empty"),
    records: entries(path.join(nodeDir, "sandboxes")),
    namespaces: running("netns"),
    links: links.filter((line) => line.trim().startsWith(`as${instance}h`)).length,
    // Without the one that all runtime calls share, which is there from the first of them on.
    cgroups: existsSync(cgroup)
      ? readdirSync(cgroup, { withFileTypes: true }).filter((e) => e.isDirectory() && e.name !== "calls.").length
      : 0,
  };
}

/** Sandboxes made ahead that no pod has: their pipe is there from their start until one takes them. */
export function waitingSandboxes(engine: RealEngine): string[] {
  return sandboxIds(engine).filter((id) => isWaiting(engine, id));
}

/** Sandboxes that pods have, or that belong to no pod any more. */
export function takenSandboxes(engine: RealEngine): string[] {
  return sandboxIds(engine).filter((id) => !isWaiting(engine, id));
}

function isWaiting({ hostDir }: RealEngine, id: string): boolean {
  return existsSync(path.join(hostDir, "containers", id, "waiting.name"));
}

/** Root containers: each is a sandbox. */
function sandboxIds({ hostDir }: RealEngine): string[] {
  const containers = path.join(hostDir, "containers");
  return readdirSync(containers).filter((id) => {
    try {
      const record = JSON.parse(readFileSync(path.join(containers, id, "record.json"), "utf8")) as RootRecord;
      return record.sandboxId === id;
    } catch {
      // It came or went while this looked.
      return false;
    }
  });
}

interface RootRecord {
  readonly sandboxId: string;
}

/** Where the engine's namespace has mounts. */
function mountPoints({ place }: RealEngine): string[] {
  const lines = readFileSync(`/proc/${place.pid}/mounts`, "utf8").trim().split("\n");
  return lines.map((line) => line.split(" ")[1] ?? "");
}
